package postadjudication

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/settlement"
)

// A payment of the letter that is told while its fork runs is that of the fork as well, for
// both have one key: what becomes of the fork's own call leaves no letter to a person.
func TestAForkWhoseKeyWasPaidMeanwhileLeavesNoLetter(t *testing.T) {
	t.Parallel()
	pays, called, answer := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := newRig(t, func(c *Config) { c.TimeLimit = 100 * time.Millisecond })
	ctx := context.Background()
	var forked atomic.Bool
	r.escrow.script = func(_ context.Context, c Call) Answer {
		if !forked.Load() {
			<-pays
			return r.escrow.pay(c, c.Amount.Minor)
		}
		close(called)
		<-answer
		return noAnswer() // and another attempt would get one
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	forked.Store(true)
	f, err := r.Fork(ctx, "acme", s.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	<-called
	close(pays)
	r.until("the payment is told", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'answered-late')`)
	if st := r.status(f.Run); st.State != background.Running {
		t.Fatalf("the fork has ended: %+v", st)
	}
	close(answer)
	r.untilNoneLive()
	if st := r.status(f.Run); st.State != background.Succeeded || st.Letter != background.NoLetter || st.Class != Executed {
		t.Errorf("%+v", st)
	}
	if c := r.caseOf(release(1)); c.UnknownOpen != 0 || c.Released != 1000 || c.Progression != settlement.Settled {
		t.Errorf("%+v", c)
	}
	r.mustAudit()
}
