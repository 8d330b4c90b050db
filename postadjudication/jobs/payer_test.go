package jobs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

const otherBank = "other-bank"

// noneOf fails the test if a worker of a queue is given anything.
func (f *fixture) noneOf(queue, what string) {
	f.t.Helper()
	if got, err := f.Fetch(f.t.Context(), jobs.Fetch{Queues: []string{queue}, Count: 1, Worker: "b1"}); err != nil || len(got) != 0 {
		f.t.Errorf("%s: workers of %s are given %d orders, %v", what, queue, len(got), err)
	}
}

// deadOrder returns an adjudication for remote workers that is a dead letter after an answer.
func (f *fixture) deadOrder(n int, answer background.Failure) postadjudication.Submitted {
	f.t.Helper()
	s, job := f.submitRemote(n)
	f.mustFetchOrder("w1")
	if _, err := f.Nack(f.t.Context(), by(job), answer, false, background.EndByPolicy); err != nil {
		f.t.Fatal(err)
	}
	f.WaitLetter(s.Run)
	return s
}

// The queue of an adjudication for remote workers is its payer, and an operation key belongs to one: no door forks
// it into another queue, whatever is known of the money. The queue that it has is no change.
func TestNoDoorForksAnOrderToAnotherPayer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime = 24 * time.Hour })
	f.StartWorkers() // they work on plans
	ada, gateOf := f.Rig.As("acme", "user:ada"), func(err error) refusal.Gate {
		if refused := (*refusal.RefusedError)(nil); errors.As(err, &refused) {
			return refused.Gate
		}
		t.Error(err)
		return ""
	}
	n := 0
	doors := map[string]func(s postadjudication.Submitted, queue string) refusal.Gate{
		"fork": func(s postadjudication.Submitted, queue string) refusal.Gate {
			_, err := ada.DeadLetters.Fork(t.Context(), s.Run, deadletter.Fork{Reason: "the other bank is up", Queue: queue})
			return gateOf(err)
		},
		"retry of a job": func(s postadjudication.Submitted, queue string) refusal.Gate {
			_, err := f.Jobs.DeadLetters().Retry(t.Context(), s.Run.String(), jobs.Retry{Reason: "the other bank is up", Queue: queue})
			return gateOf(err)
		},
		"plan": func(s postadjudication.Submitted, queue string) refusal.Gate {
			planned := f.MustPlan(bulk.Request{Action: bulk.Fork, Filter: deadletter.Filter{Family: postadjudication.Family, Transaction: rig.Release(n).TransactionReceiptID}, Queue: queue, Reason: "the other bank is up"})
			if planned.Refused[refusal.GateAnotherPayer] != 1 {
				t.Errorf("the plan foresees %v", planned.Refused)
			}
			f.RunPlan(planned)
			for _, item := range f.BulkItems(planned.ID, "refused") {
				return item.Gate
			}
			return ""
		},
	}
	var letters []postadjudication.Submitted
	for name, door := range doors {
		for what, answer := range map[string]background.Failure{"unknown": unclear, "not executed": notExecuted} {
			n++
			s := f.deadOrder(n, answer)
			if gate := door(s, otherBank); gate != refusal.GateAnotherPayer {
				t.Errorf("%s of what is %s: refused by %q", name, what, gate)
			}
			f.noneOf(otherBank, name)
			if st := f.StatusOf(s.Run); st.Letter != background.LetterOpen {
				t.Errorf("%s of what is %s: %s", name, what, st.Letter)
			}
			letters = append(letters, s)
		}
	}
	for _, s := range letters {
		if _, err := ada.DeadLetters.Fork(t.Context(), s.Run, deadletter.Fork{Reason: "its own bank is up", Queue: payouts}); err != nil {
			t.Errorf("into its own queue: %v", err)
		}
	}
	if queues, _, err := f.Queues().List(t.Context(), mail, 0, 10); err != nil || slices.ContainsFunc(queues, func(q jobs.Queue) bool { return q.Name == otherBank }) {
		t.Errorf("workers are told of %v, %v", queues, err)
	}
	f.MustAudit()
}

// An order whose queue was changed in the database is given to nobody: neither to the workers of the other queue,
// nor to those of a repeated fetch, nor once an adjudication of an escrow service is made one of remote workers.
func TestAnOrderOfAnotherQueueIsGivenToNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) {
		c.Remote.KeyLifetime, c.PaymentQueues = 24*time.Hour, append(c.PaymentQueues, otherBank)
	})
	forked := f.deadOrder(1, notExecuted)
	waits, _ := f.submitRemote(2)
	local := f.MustSubmit(rig.Release(3))
	for what, sql := range map[string]string{
		"a waiting run":              `UPDATE recourse.runs SET queue = '` + otherBank + `' WHERE id = '` + waits.Run.String() + `'`,
		"a run of an escrow service": `UPDATE recourse.runs SET remote = true, queue = '` + otherBank + `' WHERE id = '` + local.Run.String() + `'`,
		"a dead letter":              `UPDATE recourse.runs SET queue = '` + otherBank + `' WHERE id = '` + forked.Run.String() + `'`,
	} {
		testkit.Tamper(t, f.DB, sql)
		found, err := f.Audit(t.Context())
		if err != nil || !strings.Contains(fmt.Sprint(found.Breaks), "the queue of another payer") {
			t.Errorf("%s: the audit found %+v, %v", what, found.Breaks, err)
		}
	}
	f.noneOf(otherBank, "altered")
	for _, s := range []postadjudication.Submitted{waits, local} {
		if st := f.StatusOf(s.Run); st.ReasonCode != background.ReasonRequestAltered {
			t.Errorf("%s: %s", st.State, st.ReasonCode)
		}
	}
	var refused *refusal.RefusedError
	if _, err := f.Rig.As("acme", "user:ada").DeadLetters.Fork(t.Context(), forked.Run, deadletter.Fork{Reason: "again"}); !errors.As(err, &refused) || refused.Gate != refusal.GateRequestAltered {
		t.Errorf("fork: %v", err)
	}

	leased, _ := f.submitRemote(4)
	again := func(queue string) int {
		got, err := f.Fetch(t.Context(), jobs.Fetch{Queues: []string{queue}, Count: 1, Worker: "w1", Key: lease.FetchKey{1}})
		if err != nil {
			t.Fatal(err)
		}
		return len(got)
	}
	if again(payouts) != 1 {
		t.Fatal("the order is not given")
	}
	testkit.Tamper(t, f.DB, `UPDATE recourse.runs SET queue = '`+otherBank+`' WHERE id = '`+leased.Run.String()+`'`)
	if again(otherBank) != 0 {
		t.Error("a repeated fetch is given an order of another queue")
	}
}
