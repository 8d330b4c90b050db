package journal_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// Transitions that neither leave a call outstanding nor record an answer keep the
// outstanding calls.
func TestTransitionsKeepOutstandingCalls(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Migrated(t)
	j, other := journaltest.Open(t, url), journaltest.Open(t, url)
	seen := journaltest.Submit(t, j)
	step := func(attempt int, want []int, fact receipts.Subtype, change func(*background.Transition)) {
		t.Helper()
		m := journaltest.Transition(fact, seen.Run)
		if change != nil {
			change(&m)
		}
		now, err := j.CommitTransition(ctx, seen.Run.ID, m.ID, journaltest.Decide(m))
		if err != nil {
			t.Fatal(err)
		}
		seen = *now
		stored, err := other.Cases.Snapshot(ctx, seen.Run.ID)
		if err != nil || stored.Run.Attempt != attempt || !slices.Equal(stored.Run.OutstandingCalls, want) || !slices.Equal(now.Run.OutstandingCalls, want) {
			t.Errorf("%s: stored %v, answered %v; want %v (%v)", fact, stored.Run.OutstandingCalls, now.Run.OutstandingCalls, want, err)
		}
	}
	leave := func(m *background.Transition) { m.LeavesCallOutstanding = true }
	step(1, nil, receipts.AttemptStarted, nil)
	step(1, []int{1}, receipts.AttemptInterrupted, leave)
	step(2, []int{1}, receipts.AttemptStarted, nil)
	step(2, []int{1}, receipts.AttemptInterrupted, nil)
	step(3, []int{1}, receipts.AttemptStarted, nil)
	step(3, []int{1, 3}, receipts.AttemptInterrupted, leave)
	step(3, []int{3}, receipts.AnsweredLate, func(m *background.Transition) { m.Run.Attempt = 1 })
	step(3, nil, receipts.AnsweredLate, nil)
	step(4, nil, receipts.AttemptStarted, nil)
}

// The guards of claims do not keep facts from being written: a late answer that arrives
// during the next attempt is recorded even if the circuit breaker is open or the process is
// lost.
func TestALateAnswerIsRecordedWhileABreakerIsOpenAndOfALostProcess(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(*testing.T, *journal.Journal, background.Session){
		"nothing": func(*testing.T, *journal.Journal, background.Session) {},
		"breaker": func(t *testing.T, j *journal.Journal, _ background.Session) {
			mustUpdateBreaker(t, j, circuit.Scope{Tenant: "acme", Family: "plain", Name: "plain"}, openBreaker)
		},
		"session": func(t *testing.T, j *journal.Journal, s background.Session) {
			if lost, err := j.Sessions.MarkLost(context.Background(), s); !lost || err != nil {
				t.Fatalf("%v, %v", lost, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, j := context.Background(), journaltest.Open(t, testkit.Migrated(t))
			session := background.Session{ID: uuid.New(), Worker: "w"}
			if err := j.Sessions.Register(ctx, session); err != nil {
				t.Fatal(err)
			}
			seen := journaltest.Submit(t, j)
			made := func(fact receipts.Subtype, change func(*background.Transition)) error {
				m := journaltest.Transition(fact, seen.Run)
				change(&m)
				now, err := j.CommitTransition(ctx, seen.Run.ID, m.ID, journaltest.Decide(m))
				if err == nil {
					seen = *now
				}
				return err
			}
			claim := func(m *background.Transition) { m.Session = session.ID }
			err := errors.Join(made(receipts.AttemptStarted, claim),
				made(receipts.AttemptInterrupted, func(m *background.Transition) { m.LeavesCallOutstanding = true }), made(receipts.AttemptStarted, claim))
			if err != nil {
				t.Fatal(err)
			}
			damage(t, j, session)
			err = made(receipts.AnsweredLate, func(m *background.Transition) {
				m.Run.Attempt, m.Result.Class = 1, background.Executed
			})
			if err != nil || seen.Run.State != background.Running || seen.Run.Class != background.Executed {
				t.Errorf("%+v, %v", seen.Run, err)
			}
			if stored, err := j.Cases.Snapshot(ctx, seen.Run.ID); err != nil || stored.Run.Class != background.Executed || stored.Case.Head.Seq != 5 {
				t.Errorf("stored %+v, %v", stored.Run, err)
			}
			auditPlain(t, j, seen)
		})
	}
}
