package postadjudication_test

import (
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// The clock of the database was ahead when a call was made, and was set right: the key looks younger than it is, by the
// difference, once the clock has come as far. It stays unknown how old it is, also if all processes stood still while
// the clock was set. A person's finding ends that: the fork has a new key.
func TestAKeyFromBeforeTheDatabaseClockWasSetBackIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"while a process runs": false, "while none runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ahead = time.Hour
			c := rig.NewDatabaseClock(t, func(c *postadjudication.Config) {
				c.TimeLimit, c.LostAfter, c.Policy.MaxRetryAttempts = 200*time.Millisecond, 3*time.Second, 1
				e := c.Executor.(*rig.Escrow)
				e.KeyLife, e.LookupLife, e.Flight = 10*time.Minute, 10*time.Minute, 300*time.Millisecond
			})
			c.Set(ahead)
			calls := c.Escrow.Record(func(call escrow.Call) escrow.Answer {
				if c.Escrow.TotalCalls() == 1 {
					return rig.NoAnswer()
				}
				return c.Escrow.Pay(call, call.Amount.Minor)
			})
			r := c.Join()
			c.WaitInUse(r)
			s := r.MustSubmit(rig.Release(1))
			r.WaitLetter(s.Run)
			if stopped {
				r.StopWorkers()
			}
			c.Set(0)
			if stopped {
				r = c.Join()
			}
			c.WaitInUse(r)
			c.Set(ahead + 5*time.Second) // the time comes that the clock had shown
			c.WaitInUse(r)

			var refused *refusal.RefusedError
			letters := r.As("acme", "user:ada").DeadLetters
			if _, err := letters.Fork(t.Context(), s.Run, rig.ForkRequest); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst {
				t.Fatalf("the fork: %v", err)
			}
			if _, err := letters.Lookup(t.Context(), s.Run); r.StatusOf(s.Run).Class != escrow.Unknown {
				t.Errorf("a lookup of a key whose age is unknown: %v", err)
			}
			r.Wait("the call can't be on its way any more", func() bool {
				_, err := letters.Reconcile(t.Context(), s.Run, deadletter.Finding{Reason: "the bank says no", Class: escrow.NotExecuted, Reference: "stmt"})
				if err != nil && (!errors.As(err, &refused) || refused.Gate != refusal.GateCallOutstanding) {
					t.Fatal(err)
				}
				return err == nil
			})
			fork := r.MustFork(s)
			r.WaitNoneLive()
			if got := r.StatusOf(fork.Run); got.State != background.Succeeded || len(calls()) != 2 || calls()[0].OperationKey == calls()[1].OperationKey {
				t.Errorf("the fork is %+v, the calls %+v", got, calls())
			}
			r.MustAudit()
		})
	}
}

// A call that got no answer may be on its way for ten minutes. The clock of the database is set ahead by an hour seconds
// after it: that time has not passed, also where all processes stood still while the clock was set. Neither a lookup nor
// a person's finding clears the money, and the call that arrives pays once.
func TestACallIsOnItsWayAlthoughTheDatabaseClockWasSetAhead(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"while a process runs": false, "while none runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := rig.NewDatabaseClock(t, func(c *postadjudication.Config) {
				c.TimeLimit, c.LostAfter, c.Policy.MaxRetryAttempts = 200*time.Millisecond, 3*time.Second, 1
				c.Executor.(*rig.Escrow).Flight = 10 * time.Minute
			})
			calls := c.Escrow.Record(func(escrow.Call) escrow.Answer { return rig.NoAnswer() })
			r := c.Join()
			c.WaitInUse(r)
			s := r.MustSubmit(rig.Release(1))
			r.WaitLetter(s.Run)
			if stopped {
				r.StopWorkers()
			}
			c.Set(time.Hour)
			if stopped {
				r = c.Join()
			}
			c.WaitInUse(r)

			letters := r.As("acme", "user:ada").DeadLetters
			_, err := letters.Lookup(t.Context(), s.Run)
			if got := r.StatusOf(s.Run); got.Class != escrow.Unknown {
				t.Errorf("after a lookup the outcome is %s, %v", got.Class, err)
			}
			var refused *refusal.RefusedError
			if _, err := letters.Reconcile(t.Context(), s.Run, deadletter.Finding{Reason: "the bank says no", Class: escrow.NotExecuted, Reference: "stmt"}); !errors.As(err, &refused) || refused.Gate != refusal.GateCallOutstanding {
				t.Errorf("a finding while the call may be on its way: %v", err)
			}
			c.Escrow.Pay(calls()[0], calls()[0].Amount.Minor)
			if _, err := letters.Lookup(t.Context(), s.Run); err != nil || r.StatusOf(s.Run).Class != escrow.Executed {
				t.Errorf("after the call has arrived: %v", err)
			}
			r.MustAudit()
		})
	}
}

// The clock of the database was set right after a call was accepted, so that nobody knows how old its key is, and the service has it
// no more. No later answer can say what became of it: the run is a dead letter, and waits for no end of the span.
func TestAnAcceptedCallWhoseKeyHasNoKnownAgeIsADeadLetter(t *testing.T) {
	t.Parallel()
	c := rig.NewDatabaseClock(t, func(c *postadjudication.Config) {
		c.LostAfter = 3 * time.Second
		e := c.Executor.(*rig.Escrow)
		e.KeyLife, e.LookupLife, e.Accepting = 24*time.Hour, 24*time.Hour, 12*time.Hour
	})
	c.Set(10 * time.Second)
	c.Escrow.Answer(rig.Accepts)
	l := &lookupScript{answers: []escrow.Answer{rig.Accepted()}}
	c.Escrow.ScriptLookups(l.answer)
	r := c.Join()
	c.WaitInUse(r)
	s := r.MustSubmit(rig.Release(1))
	r.Wait("the service is asked", func() bool { return l.count() > 0 })
	c.Set(0)
	c.WaitInUse(r)
	c.Escrow.ScriptLookups((&lookupScript{answers: []escrow.Answer{answerAbsent}}).answer)
	r.WaitLetter(s.Run)
	if st := r.StatusOf(s.Run); st.Class != escrow.Unknown {
		t.Errorf("%+v", st)
	}
	r.MustAudit()
}
