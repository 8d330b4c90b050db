package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/settlement"
)

func TestScrapingMeasuresAtMostEveryFiveSecondsAndATwentiethOfTheTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	measured, takes, fails := 0, time.Duration(0), error(nil)
	l := &levelCache{now: func() time.Time { return now }, measure: func(context.Context) (storeLevels, error) {
		measured++
		now = now.Add(takes)
		return storeLevels{Levels: postadjudication.Levels{AtRisk: settlement.Sums{"EUR": settlement.SumOf(int64(measured))}}}, fails
	}}
	ask := func(after time.Duration, want int) {
		t.Helper()
		now = now.Add(after)
		got, err := l.get(t.Context())
		if !errors.Is(err, fails) || measured != want || got.AtRisk["EUR"] != settlement.SumOf(int64(want)) {
			t.Errorf("after %s: measured %d times, not %d; %v, %v", after, measured, want, got, err)
		}
	}
	ask(0, 1)
	ask(4999*time.Millisecond, 1)
	takes = time.Second
	ask(time.Millisecond, 2)
	ask(19*time.Second, 2)
	takes, fails = 0, errors.New("no answer")
	ask(time.Second, 3)
	ask(time.Second, 3)
}
