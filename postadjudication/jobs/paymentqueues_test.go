package jobs_test

import (
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// A job that looks like an adjudication enters no payment queue by any door: the workers of the queue would pay
// what somebody wrote who decided nothing.
func TestNothingButAdjudicationsEntersAPaymentQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dead := f.mustDie()
	for door, err := range map[string]error{
		"enqueue": second(f.Enqueue(t.Context(), jobs.Job{Type: "adjudication.release", Queue: payouts, Payload: []byte(`{"args":[]}`)})),
		"unique":  second(f.Enqueue(t.Context(), jobs.Job{Type: "adjudication.release", Queue: payouts, Payload: []byte(`{"args":[]}`), Unique: &jobs.Unique{}})),
		"retry":   second(f.Jobs.DeadLetters().Retry(t.Context(), dead.ID, jobs.Retry{Reason: "pay it", Queue: payouts})),
	} {
		if field := (*refusal.FieldError)(nil); !errors.As(err, &field) || field.Field != "queue" {
			t.Errorf("%s: %v", door, err)
		}
	}
	f.noneOf(payouts, "a job")
	if now := f.mustFind(dead.ID); now.State != background.DeadLettered {
		t.Errorf("the dead letter is %s", now.State)
	}
	f.MustAudit()
}

func second[T any](_ T, err error) error { return err }

// Where the payment queues of processes change, what was enqueued before waits, and its status says why:
// adjudications in a queue that is none now, and jobs in one that is.
func TestWhatWaitsInTheWrongQueueIsGivenToNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order, _ := f.submitRemote(1)
	job := f.mustEnqueue()
	changed := f.other(func(c *postadjudication.Config) { c.PaymentQueues = []string{mail} })
	changed.noneOf(payouts, "an adjudication in what is no payment queue")
	changed.noneOf(mail, "a job in a payment queue")
	for _, c := range []struct {
		run  background.RunID
		want string
	}{{order.Run, casestatus.WaitsForTarget}, {job.Run, casestatus.WaitsForQueue}} {
		if st := changed.StatusOf(c.run); st.WaitsFor != c.want || st.WaitsBecause == "" {
			t.Errorf("waits for %s: %s; want %s", st.WaitsFor, st.WaitsBecause, c.want)
		}
	}
	f.StartWorkers()
	for _, run := range []background.RunID{order.Run, job.Run} {
		if st := f.StatusOf(run); st.WaitsFor != casestatus.WaitsForWorker {
			t.Errorf("waits for %s: %s", st.WaitsFor, st.WaitsBecause)
		}
	}
	f.mustFetchOrder("w1")
	f.mustFetch(job)
	f.MustAudit()
}
