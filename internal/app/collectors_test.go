package app

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/settlement"
)

func TestScrapingMeasuresAtMostEveryFiveSecondsAndATwentiethOfTheTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	measured, takes, fails := 0, time.Duration(0), map[string]error(nil)
	l := newLevelCache(nil, zap.NewNop())
	l.now = func() time.Time { return now }
	l.measure = func(context.Context) storeLevels {
		measured++
		now = now.Add(takes)
		return storeLevels{Levels: postadjudication.Levels{AtRisk: settlement.Sums{"EUR": settlement.SumOf(int64(measured))}, Failed: fails}}
	}
	ask := func(after time.Duration, want int) {
		t.Helper()
		now = now.Add(after)
		got := l.get(t.Context())
		if len(got.Failed) != len(fails) || measured != want || got.AtRisk["EUR"] != settlement.SumOf(int64(want)) {
			t.Errorf("after %s: measured %d times, not %d; %v", after, measured, want, got)
		}
	}
	ask(0, 1)
	ask(4999*time.Millisecond, 1)
	takes = time.Second
	ask(time.Millisecond, 2)
	ask(19*time.Second, 2)
	takes, fails = 0, map[string]error{"held": errors.New("no answer")}
	ask(time.Second, 3)
	ask(time.Second, 3)
}

func TestAPartOfTheMetricsIsLoggedOnceUntilItIsReadAgain(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.InfoLevel)
	var fails map[string]error
	l := newLevelCache(nil, zap.New(core))
	l.measure = func(context.Context) storeLevels { return storeLevels{Levels: postadjudication.Levels{Failed: fails}} }
	no := errors.New("no answer")
	for i, c := range []struct {
		fails  map[string]error
		logged []string
	}{
		{nil, nil}, {map[string]error{"held": no}, []string{"warn held"}}, {map[string]error{"held": no}, nil}, {map[string]error{"held": no, "runs": no}, []string{"warn runs"}},
		{map[string]error{"runs": no}, []string{"info held"}}, {map[string]error{"held": no, "runs": no}, []string{"warn held"}},
	} {
		fails, l.until = c.fails, time.Time{}
		l.get(t.Context())
		var got []string
		for _, e := range logged.TakeAll() {
			got = append(got, e.Level.String()+" "+e.ContextMap()["part"].(string))
		}
		if !slices.Equal(got, c.logged) {
			t.Errorf("measure %d logs %v, want %v", i, got, c.logged)
		}
	}
	m := newMetrics()
	m.registry.MustRegister(l.failures)
	expect(t, pageOf(t, m), `recourse_store_metric_failures_total{part="held"} 4`, `recourse_store_metric_failures_total{part="runs"} 3`, `recourse_store_metric_failures_total{part="webhooks"} 0`)
}
