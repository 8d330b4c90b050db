package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/settlement"
)

const tenant = "chaos"

// askTimeout is how long one worker may take before another one is asked.
const askTimeout = 20 * time.Second

// load submits adjudications at a rate, each until a worker has answered: a caller without an
// answer submits again.
type load struct {
	fleet    *fleet
	accepted *accepted
	seed     uint64
	remote   bool // every fifth adjudication is for remote workers

	asynchronous bool // every third is accepted by its escrow service, and ended later

	sent, unanswered atomic.Int64
	replies          sync.Map // postadjudication.Reply or error text: *atomic.Int64
	mu               sync.Mutex
	runs             []string       // some of those accepted
	last             atomic.Int64   // number of the newest submission
	open             sync.WaitGroup // transactions that callers keep open
}

// firstExtra is the number of the first adjudication that is not part of the load.
const firstExtra = 1 << 30

// latest returns the number of the newest submission.
func (l *load) latest() int { return int(l.last.Load()) }

const sharedHeld = 9000

// sharedEscrow is the escrow that the nth adjudication may share with two others.
func sharedEscrow(n int) string { return fmt.Sprintf("esc_shared_%d", n/10) }

// mix is the outcomes of calls, in percent. The rest succeed at once.
var mix = []struct {
	percent         int
	words, executor string
}{
	{8, "retryable,ok", ""}, {3, "retryable", ""}, {4, "refused", ""}, {4, "drop", ""}, {2, "hang,ok", ""}, {1, "hang", ""},
	{2, "late", ""}, {3, "late", worker.IgnoresCancel}, {1, "hang,late", worker.IgnoresCancel}, {3, "panic", ""}, {3, "partial", ""}, {1, "drop,refused", ""}, {2, "ok", worker.Misreports},
}

// run submits until ctx ends, and returns when everything was answered or limit is over
// after that.
func (l *load) run(ctx context.Context, rate int, limit time.Duration) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	sending, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	var all sync.WaitGroup
	for n := 0; ; n++ {
		select {
		case <-tick.C:
			l.last.Store(int64(n))
			all.Go(func() { l.step(sending, n) })
			continue
		case <-ctx.Done():
		}
		break
	}
	defer time.AfterFunc(limit, giveUp).Stop()
	all.Wait()
}

// step does the nth thing by the seed.
func (l *load) step(ctx context.Context, n int) {
	rng := rand.New(rand.NewPCG(l.seed, uint64(n)))
	c := worker.Command{Do: worker.Submit, Tenant: tenant, Adjudication: l.draw(rng, n)}
	switch roll := rng.IntN(100); {
	case roll < 5:
		c.Do = worker.SubmitTx
	case roll < 13 && n > 0: // the same again
		m := rng.IntN(n)
		c.Adjudication = l.draw(rand.New(rand.NewPCG(l.seed, uint64(m))), m)
	case roll < 16 && n > 0: // the other way
		m := rng.IntN(n)
		c.Adjudication = l.draw(rand.New(rand.NewPCG(l.seed, uint64(m))), m)
		c.Adjudication.Outcome = settlement.Refund
	case roll < 20 && n > 0: // again, in a higher generation
		m := max(0, n-1-rng.IntN(200))
		c.Adjudication = l.draw(rand.New(rand.NewPCG(l.seed, uint64(m))), m)
		c.Adjudication.Generation, c.Adjudication.AdjudicationID = 2, fmt.Sprintf("adj_%d_2", n)
	case roll < 23:
		c = worker.Command{Do: worker.SubmitTask, RetryKey: fmt.Sprint("chore_", rng.IntN(n+1))}
	case roll < 27:
		c = worker.Command{Do: worker.Cancel, Tenant: tenant, Run: l.someRun(rng)}
	case roll < 33:
		c = worker.Command{Do: worker.Fork, Tenant: tenant, Run: l.someRun(rng)}
	}
	if (c.Do == worker.Cancel || c.Do == worker.Fork) && c.Run == "" {
		return
	}
	l.sent.Add(1)
	l.untilAnswered(ctx, rng, c)
}

// draw returns the nth adjudication.
func (l *load) draw(rng *rand.Rand, n int) postadjudication.Adjudication {
	a := drawAdjudication(rng, n)
	if l.asynchronous && n%3 == 1 {
		a.Payload = fmt.Appendf(nil, `{"simulate":%q,"lookup":%q}`, acceptedMix[rng.IntN(len(acceptedMix))], lookupMix[rng.IntN(len(lookupMix))])
	}
	if l.remote && n%5 == 4 {
		a.Target = escrow.RemotePrefix + remote.PayQueue
	}
	return a
}

// drawAdjudication returns the nth adjudication. Its escrow holds three times as much, so that lack
// of funds does not hide a second payment. Some share an escrow.
func drawAdjudication(rng *rand.Rand, n int) postadjudication.Adjudication {
	words, executor := "ok", ""
	roll := rng.IntN(100)
	for _, m := range mix {
		if roll -= m.percent; roll < 0 {
			words, executor = m.words, m.executor
			break
		}
	}
	reference, held := fmt.Sprintf("esc_%d", n), int64(3000)
	if n%10 < 3 {
		reference, held = sharedEscrow(n), sharedHeld // of three, each of whom may move a part only
	}
	money := func(minor int64) settlement.Money { return settlement.Money{Minor: minor, Currency: "EUR"} }
	return postadjudication.Adjudication{
		Instruction: settlement.Instruction{
			Tenant: tenant, TransactionReceiptID: fmt.Sprintf("txr_%d", n), SubmissionReceiptID: fmt.Sprintf("sub_%d", n),
			AdjudicationID: fmt.Sprintf("adj_%d", n), EscrowReference: reference, Outcome: settlement.Release,
			Generation: 1, Amount: money(1000), Held: money(held),
		},
		Payload: fmt.Appendf(nil, `{"simulate":%q,"executor":%q,"lookup":%q}`, words, executor, lookupMix[rng.IntN(len(lookupMix))]),
	}
}

// acceptedMix is the outcomes of calls that end later.
var acceptedMix = []string{"accept", "accept", "accept", "accept", "retryable,accept", "decline,ok", "decline,refused", "decline,accept"}

// lookupMix is the outcomes of lookups: answered by a replica that lags, or not at all.
var lookupMix = []string{"ok", "ok", "ok", "ok", "ok", "ok", "lag", "fail,ok", "fail,lag", "lag,ok"}

// untilAnswered asks one worker after the other. A submission without an answer may have
// been accepted.
func (l *load) untilAnswered(ctx context.Context, rng *rand.Rand, c worker.Command) {
	submits := c.Do == worker.Submit || c.Do == worker.SubmitTx
	if submits {
		l.accepted.noteSubmitted(c.Adjudication)
	}
	for ctx.Err() == nil {
		h := l.fleet.anyReady(rng)
		if h == nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		limited, cancel := context.WithTimeout(ctx, askTimeout)
		r, err := h.ask(limited, c)
		cancel()
		if err == nil && r.Error == "" {
			l.count(c.Do + ": " + string(r.Reply))
			l.note(c, r)
			return
		}
		if err == nil && !submits && c.Do != worker.SubmitTask {
			l.count(c.Do + ": refused") // the run may have been anything by then
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	l.unanswered.Add(1)
}

func (l *load) note(c worker.Command, r worker.Reply) {
	switch c.Do {
	case worker.Submit, worker.SubmitTx:
		l.accepted.noteReply(c.Adjudication, r)
	case worker.Fork, worker.SubmitTask:
		l.accepted.noteOtherRun(r)
	}
	if r.Reply == postadjudication.Created && c.Do != worker.SubmitTask {
		l.mu.Lock()
		l.runs = append(l.runs, r.Run)
		l.mu.Unlock()
	}
}

// someRun returns a run that was accepted lately.
func (l *load) someRun(rng *rand.Rand) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.runs) == 0 {
		return ""
	}
	return l.runs[len(l.runs)-1-rng.IntN(min(len(l.runs), 300))]
}

func (l *load) count(what string) {
	n, _ := l.replies.LoadOrStore(what, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

func (l *load) counts() map[string]int64 {
	out := map[string]int64{}
	l.replies.Range(func(k, v any) bool {
		out[k.(string)] = v.(*atomic.Int64).Load()
		return true
	})
	return out
}

// accepted holds every run with the reply created, every decision with a reply that accepts it,
// and every transaction that was ever named. It is safe for concurrent use.
type accepted struct {
	mu        sync.Mutex
	runs      map[string]postadjudication.Adjudication // by run id
	submitted map[transaction]bool                     // whether its executor misreports
	otherRuns map[string]bool                          // runs of forks and of plain tasks

	decisions map[decision]postadjudication.Reply // accepted decisions, with the reply
	returns   map[transaction]returned            // payments that came back
}

type transaction struct{ tenant, id string }

func newAccepted() *accepted {
	return &accepted{
		runs: map[string]postadjudication.Adjudication{}, submitted: map[transaction]bool{}, otherRuns: map[string]bool{}, decisions: map[decision]postadjudication.Reply{}, returns: map[transaction]returned{},
	}
}

// noteSubmitted records that a transaction is about to be submitted.
func (a *accepted) noteSubmitted(ad postadjudication.Adjudication) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := transaction{ad.Tenant, ad.TransactionReceiptID}
	a.submitted[t] = a.submitted[t] || bytes.Contains(ad.Payload, fmt.Appendf(nil, "%q", worker.Misreports))
}

// noteReply records the reply of a submission.
func (a *accepted) noteReply(ad postadjudication.Adjudication, r worker.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Reply == postadjudication.Created {
		a.runs[r.Run] = ad
	}
	if r.Reply.Accepted() {
		a.decisions[decisionOf(ad)] = r.Reply
	}
}

// noteOtherRun records the run of a fork, or of a task that moves no money.
func (a *accepted) noteOtherRun(r worker.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Reply == postadjudication.Created {
		a.otherRuns[r.Run] = true
	}
}
