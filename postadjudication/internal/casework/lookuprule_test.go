package casework

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

func TestPausesBetweenLookupsDouble(t *testing.T) {
	t.Parallel()
	r := LookupRule{}.WithDefaults()
	for asked, want := range map[int]time.Duration{1: time.Minute, 2: 2 * time.Minute, 3: 4 * time.Minute, 9: 256 * time.Minute, 10: 6 * time.Hour, 1000: 6 * time.Hour} {
		if got := r.pause(asked); got != want {
			t.Errorf("after lookup %d: %s, want %s", asked, got, want)
		}
	}
}

// NotExecuted is believed only from the second answer on, in-flight time and the first pause apart, after the same calls.
func TestWhichAnswersAreBelieved(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	run := background.Run{Target: escrow.DefaultTarget, Attempt: 2, FirstSentAt: now.Add(-2 * time.Hour)}
	saidAt := func(ago time.Duration) journal.LookupRecord {
		return journal.LookupRecord{Attempt: 2, Count: 1, Answer: escrow.NotExecuted, NotExecutedAt: now.Add(-ago)}
	}
	after := func(r journal.LookupRecord, change func(*journal.LookupRecord)) journal.LookupRecord {
		change(&r)
		return r
	}
	for _, tc := range []struct {
		name             string
		was              journal.LookupRecord
		answer           escrow.Class
		flight, lifetime time.Duration
		believed         bool
		next             time.Duration // until the next lookup; 0: a person finds out
		absentFor        time.Duration // since the first NotExecuted that counts; -1: none
	}{
		{"executed", journal.LookupRecord{}, escrow.Executed, time.Minute, escrow.Forever, true, time.Minute, -1},
		{"executed, after not executed", saidAt(time.Hour), escrow.Executed, time.Minute, escrow.Forever, true, 2 * time.Minute, -1},
		{"said once", journal.LookupRecord{}, escrow.NotExecuted, time.Minute, escrow.Forever, false, time.Minute, 0},
		{"said once, a long flight", journal.LookupRecord{}, escrow.NotExecuted, time.Hour, escrow.Forever, false, time.Hour, 0},
		{"said once, the executor judges the flight", journal.LookupRecord{}, escrow.NotExecuted, -time.Second, escrow.Forever, false, time.Minute, 0},
		{"said twice", saidAt(time.Minute), escrow.NotExecuted, time.Minute, escrow.Forever, true, 2 * time.Minute, time.Minute},
		{"said twice, too soon", saidAt(time.Minute - 1), escrow.NotExecuted, time.Minute, escrow.Forever, false, 1, time.Minute - 1},
		{"said twice, too soon for a long flight", saidAt(time.Minute), escrow.NotExecuted, time.Hour, escrow.Forever, false, 59 * time.Minute, time.Minute},
		{"said twice, too soon where the executor judges the flight", saidAt(time.Second), escrow.NotExecuted, -time.Second, escrow.Forever, false, 59 * time.Second, time.Second},
		{"said before the last attempt", after(saidAt(time.Hour), func(r *journal.LookupRecord) { r.Attempt = 1 }), escrow.NotExecuted, time.Minute, escrow.Forever, false, time.Minute, 0},
		{"said in the future, by a clock that was set back", saidAt(-time.Hour), escrow.NotExecuted, time.Minute, escrow.Forever, false, time.Minute, 0},
		{"nothing said between", after(saidAt(time.Hour), func(r *journal.LookupRecord) { r.Answer = escrow.Unknown }), escrow.NotExecuted, time.Minute, escrow.Forever, true, 2 * time.Minute, time.Hour},
		{"after another amount", after(journal.LookupRecord{Attempt: 2, Count: 1, Answer: escrow.Executed, ManualReason: LookupOtherAmount}, func(*journal.LookupRecord) {}), escrow.NotExecuted, time.Minute, escrow.Forever, false, 0, -1},
		{"after another amount, tells nothing", journal.LookupRecord{Attempt: 2, Count: 1, Answer: escrow.Executed, ManualReason: LookupOtherAmount}, escrow.Unknown, time.Minute, escrow.Forever, false, 0, -1},
		{"tells nothing", saidAt(time.Hour), escrow.Unknown, time.Minute, escrow.Forever, false, 2 * time.Minute, time.Hour},
		{"asked once more before the key is forgotten", saidAt(time.Hour), escrow.Unknown, time.Minute, 2*time.Hour + 2*time.Minute + 4*time.Second, false, time.Minute + 2*time.Second, time.Hour},
		{"forgotten before the next lookup", saidAt(time.Hour), escrow.Unknown, time.Minute, 2*time.Hour + time.Minute, false, 0, time.Hour},
	} {
		f := SettlementFamily{Executor: fixedEscrow{keyLifetime: tc.lifetime, inFlight: tc.flight}, Targets: Targets{escrow.DefaultTarget: nil}, Lookups: LookupRule{}.WithDefaults(), ClockUnchanged: never}
		next, believed := weigh(&f, &tc.was, &run, background.Result{Class: tc.answer}, now)
		if believed != tc.believed {
			t.Errorf("%s: believed %v", tc.name, believed)
		}
		if tc.next == 0 && (!next.NextAt.IsZero() || next.ManualReason == "") || tc.next != 0 && !next.NextAt.Equal(now.Add(tc.next)) {
			t.Errorf("%s: next lookup at %v (%q), want after %s", tc.name, next.NextAt, next.ManualReason, tc.next)
		}
		if tc.absentFor == -1 != next.NotExecutedAt.IsZero() || tc.absentFor >= 0 && !next.NotExecutedAt.Equal(now.Add(-tc.absentFor)) {
			t.Errorf("%s: not executed since %v, want for %s", tc.name, next.NotExecutedAt, tc.absentFor)
		}
	}
	for since, believed := range map[time.Duration]bool{time.Minute: true, time.Minute - 1: false} {
		f := SettlementFamily{Executor: fixedEscrow{keyLifetime: escrow.Forever, inFlight: time.Minute}, Targets: Targets{escrow.DefaultTarget: nil}, Lookups: LookupRule{}.WithDefaults(), ClockUnchanged: func() time.Time { return now.Add(-since) }}
		was := saidAt(time.Hour)
		if next, got := weigh(&f, &was, &run, background.Result{Class: escrow.NotExecuted}, now); got != believed || !got && !next.NextAt.Equal(now.Add(1)) {
			t.Errorf("said an hour ago by a clock that was set %s ago: believed %v, next at %s", since, got, next.NextAt)
		}
	}
}
