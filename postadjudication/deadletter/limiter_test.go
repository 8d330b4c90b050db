package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

func TestAProcessHasConditionsOfFewTenantsAtOnce(t *testing.T) {
	t.Parallel()
	l := deadletter.NewLimiter()
	var releases []func()
	for i := range deadletter.MaxConditionsPerProcess {
		release, err := l.Acquire(fmt.Sprint(i))
		if err != nil {
			t.Fatal(i, err)
		}
		releases = append(releases, release)
	}
	if _, err := l.Acquire("one more"); !errors.Is(err, deadletter.ErrTooManyConditions) {
		t.Errorf("%v", err)
	}
	releases[0]()
	if _, err := l.Acquire("one more"); err != nil {
		t.Errorf("when one has ended: %v", err)
	}
}

func TestEvaluationsTakeTurns(t *testing.T) {
	t.Parallel()
	l := deadletter.NewLimiter()
	c, err := l.Condition(t.Context(), "acme", "attempts == 3")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Done()
	turns := l.OneProcessor()
	ctx, leave := context.WithCancel(context.Background())
	if err := turns.Do(ctx, "other", func() {
		leave()
		if _, err := c.Matches(ctx, exampleLetter()); !errors.Is(err, context.Canceled) {
			t.Errorf("without a free processor: %v", err)
		}
	}); err != nil {
		t.Error(err)
	}
	if met, err := c.Matches(context.Background(), exampleLetter()); err != nil || !met {
		t.Errorf("%v, %v", met, err)
	}
}
