package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/receipts"
)

// What keeps a run from being claimed keeps no fact about it from being written: an
// answer that comes late, while the run is at its next attempt, is on record whatever
// became of the target's brake and of the process that executes it.
func TestALateAnswerIsRecordedWhileABreakerIsOpenAndOfALostProcess(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(*testing.T, *postgres.Journal, background.Session){
		"nothing": func(*testing.T, *postgres.Journal, background.Session) {},
		"brake": func(t *testing.T, j *postgres.Journal, _ background.Session) {
			mustUpdateBreaker(t, j, background.Target{Tenant: "acme", Family: "plain", Name: "plain"}, openBreaker)
		},
		"session": func(t *testing.T, j *postgres.Journal, s background.Session) {
			if lost, err := j.MarkLost(context.Background(), s); !lost || err != nil {
				t.Fatalf("%v, %v", lost, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, j := context.Background(), open(t, testkit.Migrated(t))
			session := background.Session{ID: uuid.New(), Worker: "w"}
			if err := j.Register(ctx, session); err != nil {
				t.Fatal(err)
			}
			seen := submit(t, j)
			made := func(fact receipts.Subtype, change func(*background.Transition)) error {
				m := transition(fact, seen.Run)
				change(&m)
				now, err := j.Apply(ctx, seen.Run.ID, m.ID, decide(m))
				if err == nil {
					seen = *now
				}
				return err
			}
			claim := func(m *background.Transition) { m.Session = session.ID }
			err := errors.Join(made(receipts.AttemptStarted, claim),
				made(receipts.AttemptInterrupted, func(m *background.Transition) { m.CallStillRunning = true }), made(receipts.AttemptStarted, claim))
			if err != nil {
				t.Fatal(err)
			}
			harm(t, j, session)
			err = made(receipts.AnsweredLate, func(m *background.Transition) {
				m.Run.Attempt, m.Result.Class = 1, background.Executed
			})
			if err != nil || seen.Run.State != background.Running || seen.Run.Class != background.Executed {
				t.Errorf("%+v, %v", seen.Run, err)
			}
			if stored, err := j.Snapshot(ctx, seen.Run.ID); err != nil || stored.Run.Class != background.Executed || stored.Case.Head.Seq != 5 {
				t.Errorf("stored %+v, %v", stored.Run, err)
			}
			auditPlain(t, j, seen)
		})
	}
}
