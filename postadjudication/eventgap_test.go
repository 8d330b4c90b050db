package postadjudication_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// The database loses the end of the order of events, as by a failover to a standby that lags, and other events get the
// places of the lost ones, also all of them before a reader looks again. Functions and readers hear of the gap with its bounds, and
// then get what is in those places now.
func TestReadersHearOfALostEndOfTheOrder(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Answer(rig.Refuses)
	r.StartWorkers()
	var mu sync.Mutex
	var reported []postadjudication.DeadLetter
	defer r.OnDeadLetter(func(_ context.Context, l postadjudication.DeadLetter) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, l)
	})()
	received := func(is func(postadjudication.DeadLetter) bool) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.ContainsFunc(reported, is)
		}
	}
	of := func(run background.RunID) func(postadjudication.DeadLetter) bool {
		return func(l postadjudication.DeadLetter) bool { return l.Run == run }
	}
	reader := r.Follow("acme", 0)
	next := func() []postadjudication.Event {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute/2) // it misses them
		defer cancel()
		found, _, err := reader.Next(ctx, postadjudication.MaxEvents, func(_ context.Context, _ string, read func()) error { read(); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	die := func(n int) postadjudication.Submitted {
		t.Helper()
		s := r.MustSubmit(rig.Release(n))
		r.Wait("its death is reported", received(of(s.Run)))
		return s
	}
	die(0)
	kept := next()
	testkit.Tamper(t, r.DB, `CREATE TABLE kept AS SELECT max(last) AS last FROM recourse.event_log`)
	die(1)
	lost := next()
	reached := lost[len(lost)-1].Position
	testkit.Tamper(t, r.DB, `DELETE FROM recourse.event_log WHERE last > (SELECT last FROM kept)`, `UPDATE recourse.projected SET last = (SELECT last FROM kept)`, `DROP TABLE kept`)
	third := die(2) // as many receipts as the lost ones, in their places
	r.Wait("a function hears of the gap", received(func(l postadjudication.DeadLetter) bool {
		return l.Gap != nil && l.Gap.From < l.Gap.To
	}))

	found := next()
	if len(found) != 1 || found[0].Type != postadjudication.GapEvent || found[0].Gap == nil || found[0].Gap.From > kept[len(kept)-1].Position+8 || found[0].Gap.To < reached {
		t.Fatalf("the reader hears %+v", found)
	}
	if found = next(); !slices.ContainsFunc(found, func(e postadjudication.Event) bool { return e.Run == third.Run }) {
		t.Errorf("the reader misses what is in the places of the lost events: %+v", found)
	}
}
