package every_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recourse-dev/recourse/internal/every"
)

const interval = time.Second

var errAway = errors.New("away")

// callsUntil returns when a loop called work, since its start, until it was ended.
func callsUntil(t *testing.T, end time.Duration, log *zap.Logger, work func(ctx context.Context, call int) error) (calls []time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), end)
	defer cancel()
	begun := time.Now()
	every.Loop{Interval: interval, Failures: every.Failures{Log: log, Failed: "failed", Again: "again"}}.Run(ctx, func(ctx context.Context) error {
		calls = append(calls, time.Since(begun))
		return work(ctx, len(calls))
	})
	if took := time.Since(begun); took != end {
		t.Errorf("it returned after %s, ctx ended after %s", took, end)
	}
	return calls
}

func TestWorkIsCalledNowAndAtEachTick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := callsUntil(t, 5*interval/2, zap.NewNop(), func(context.Context, int) error { return nil })
		if want := []time.Duration{0, interval, 2 * interval}; !slices.Equal(got, want) {
			t.Errorf("called at %v, want %v", got, want)
		}
	})
}

func TestOneOfTheTicksDuringWorkIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := callsUntil(t, 11*interval/2, zap.NewNop(), func(_ context.Context, call int) error {
			if call == 2 {
				<-time.After(5 * interval / 2)
			}
			return nil
		})
		if want := []time.Duration{0, interval, 7 * interval / 2, 4 * interval, 5 * interval}; !slices.Equal(got, want) {
			t.Errorf("called at %v, want %v", got, want)
		}
	})
}

func TestEachSequenceOfFailuresIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zapcore.InfoLevel)
		results := []error{errAway, errAway, nil, nil, errAway, nil}
		callsUntil(t, 11*interval/2, zap.New(core), func(_ context.Context, call int) error { return results[call-1] })
		var got []string
		for _, e := range logged.All() {
			line := e.Level.String() + " " + e.Message
			if err, is := e.ContextMap()["error"]; is {
				line += ": " + err.(string)
			}
			got = append(got, line)
		}
		if want := []string{"error failed: away", "info again", "error failed: away", "info again"}; !slices.Equal(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
	})
}

func TestAnErrorAfterTheEndIsNotLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zapcore.InfoLevel)
		got := callsUntil(t, interval/2, zap.New(core), func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if len(got) != 1 || logged.Len() != 0 {
			t.Errorf("%d calls, logged %v", len(got), logged.All())
		}
	})
}
