package deadletter

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/recourse-dev/recourse/internal/tenantlimit"
)

func TestAProcessHasConditionsOfFewTenantsAtOnce(t *testing.T) {
	t.Parallel()
	l := NewLimiter()
	var releases []func()
	for i := range maxConditionsPerProcess {
		release, err := l.acquire(fmt.Sprint(i))
		if err != nil {
			t.Fatal(i, err)
		}
		releases = append(releases, release)
	}
	if _, err := l.acquire("one more"); !errors.Is(err, ErrTooManyConditions) {
		t.Errorf("%v", err)
	}
	releases[0]()
	if _, err := l.acquire("one more"); err != nil {
		t.Errorf("when one has ended: %v", err)
	}
}

func TestEvaluationsTakeTurns(t *testing.T) {
	t.Parallel()
	l := NewLimiter()
	c, err := l.Condition(t.Context(), "acme", "attempts == 3")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Done()
	l.cpu = tenantlimit.New(1, 1)
	ctx, leave := context.WithCancel(context.Background())
	if err := l.cpu.Do(ctx, "other", func() {
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
