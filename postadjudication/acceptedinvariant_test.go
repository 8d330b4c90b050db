package postadjudication_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// An accepted adjudication stays accepted: sent again at any later moment of its case, it is
// never answered as not accepted and starts nothing new. The sender may have lost the first
// answer, or repeat itself for another reason.
func TestAnAcceptedDecisionIsNeverRefusedLater(t *testing.T) {
	t.Parallel()
	plots := slices.Clone(fixedScenarios)
	for seed := range 30 {
		plots = append(plots, anySteps.Example(seed))
	}
	var banks []string
	for n := range plots {
		banks = append(banks, (&scenario{n: n}).target())
	}
	r := rig.New(t, withTargets(banks...), func(c *postadjudication.Config) {
		c.TimeLimit = 100 * time.Millisecond
		c.Policy.MaxRetryAttempts = 1
		c.Sweep = 50 * time.Millisecond
	})
	var stories sync.Map // by target
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		found, _ := stories.Load(c.Target)
		return found.(*scenario).answer(c)
	})
	r.StartWorkers()
	room := make(chan struct{}, 8)
	var all sync.WaitGroup
	for n, plot := range plots {
		st := &scenario{Rig: r, n: n, answers: map[int]string{}, late: make(chan struct{})}
		stories.Store(st.target(), st)
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			st.run(plot)
		})
	}
	all.Wait()
	if err := r.DrainEvents(context.Background()); err != nil {
		t.Fatal(err)
	}
	a, err := r.Audit(context.Background())
	if err != nil || !a.OK() {
		t.Errorf("%v, %v", a.Broken, err)
	}
}

// The steps of a plot: an action of a person or a sender, then "=" and how the escrow service
// answers the calls it causes.
var (
	stepNames = []string{"release", "refund", "part", "lost answer", "fork", "executed", "not executed", "purge", "cancel", "late", "park", "unpark"}
	answers   = []string{"pays", "pays a part", "refuses", "hangs"}

	anySteps = rapid.Custom(func(t *rapid.T) (plot []string) {
		for range rapid.IntRange(3, 9).Draw(t, "length") {
			plot = append(plot, rapid.SampledFrom(stepNames).Draw(t, "act")+"="+rapid.SampledFrom(answers).Draw(t, "answer"))
		}
		return plot
	})

	fixedScenarios = [][]string{
		{"release=pays"},
		{"lost answer=pays"},
		{"refund=pays", "release=pays"},
		{"release=pays a part", "part=pays"},
		{"release=refuses", "fork=refuses", "fork=pays"},
		{"release=refuses", "executed"},
		{"release=refuses", "not executed", "fork=pays"},
		{"release=refuses", "purge", "executed"},
		{"release=refuses", "purge", "refund=pays"},
		{"release=hangs", "late"},
		{"release=hangs", "not executed", "fork=pays", "late"},
		{"park", "release=pays", "cancel", "unpark"},
		{"park", "lost answer=pays", "cancel", "refund=pays", "unpark"},
		{"part=hangs", "not executed", "release=refuses", "late", "not executed"},
		{"part=hangs", "not executed", "park", "release=pays", "late", "refund=refuses", "unpark"},
		{"release=refuses", "refund=refuses", "part=pays"},
		{"release=pays a part", "park", "part=pays", "cancel", "unpark", "part=pays"},
	}
)

// scenario is one transaction and what was accepted for it.
type scenario struct {
	*rig.Rig
	n           int
	steps       []string
	accepted    []postadjudication.Adjudication
	breakerOpen bool
	late        chan struct{}
	isLate      bool

	mu      sync.Mutex
	answers map[int]string // by generation
	calls   int
}

func (s *scenario) target() string { return fmt.Sprintf("bank-%d", s.n) }

func (s *scenario) answer(c escrow.Call) escrow.Answer {
	s.mu.Lock()
	s.calls++
	answer := s.answers[c.Generation]
	s.mu.Unlock()
	switch answer {
	case "pays":
		return s.Escrow.Pay(c, c.Amount.Minor)
	case "pays a part":
		return s.Escrow.Pay(c, (c.Amount.Minor+1)/2)
	case "hangs":
		<-s.late
		return s.Escrow.Pay(c, c.Amount.Minor)
	}
	return rig.Refused()
}

func (s *scenario) run(steps []string) {
	for _, step := range append(steps, "unpark", "late") {
		act, how, _ := strings.Cut(step, "=")
		s.steps = append(s.steps, step)
		s.step(act, how)
		s.waitUntilIdle()
		for _, a := range s.accepted {
			s.sendAgain(a)
		}
		if s.T.Failed() {
			return
		}
	}
}

func (s *scenario) step(act, answer string) {
	ctx := context.Background()
	who := "user:ada"
	var refused *refusal.RefusedError
	var err error
	holder, known := s.activeRun()
	if !known && !slices.Contains([]string{"release", "refund", "part", "lost answer", "park", "unpark"}, act) {
		return
	}
	switch act {
	case "release", "refund", "part", "lost answer":
		s.submitNext(act, answer)
	case "fork":
		s.setGenerationAnswer(s.CaseOf(s.next("release")).Generation, answer)
		_, err = s.As("acme", "user:ada").DeadLetters.Fork(ctx, holder.ID, rig.ForkRequest)
	case "executed":
		_, err = s.As("acme", who).DeadLetters.Reconcile(rig.AsOnePerson(ctx), holder.ID, deadletter.Finding{Reason: "the bank says so", Class: escrow.Executed, Moved: 1000, Reference: "stmt", OtherAmount: true})
	case "not executed":
		_, err = s.As("acme", who).DeadLetters.Reconcile(rig.AsOnePerson(ctx), holder.ID, deadletter.Finding{Reason: "the bank says no", Class: escrow.NotExecuted, Reference: "stmt", CallOutstanding: true})
	case "cancel":
		_, err = s.As("acme", who).Cases.Cancel(ctx, holder.ID, "a fraud")
	case "purge":
		if holder.Letter == background.LetterOpen && holder.UnknownOpen == 0 {
			_, err = s.Purge(ctx, deadletter.Filter{Transaction: s.next("release").TransactionReceiptID, Status: background.LetterOpen})
		}
	case "late":
		if !s.isLate {
			close(s.late)
		}
		s.isLate = true
	case "park":
		if !s.breakerOpen {
			_, err = s.As("acme", who).Breakers.Open(ctx, s.target(), "stop")
		}
		s.breakerOpen = true
	case "unpark":
		if s.breakerOpen {
			_, err = s.As("acme", who).Breakers.Release(ctx, s.target(), "go")
		}
		s.breakerOpen = false
	}
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, refusal.ErrNotFound) && !errors.Is(err, refusal.ErrEnded) && !errors.Is(err, refusal.ErrReconcileFirst) {
		s.T.Errorf("%q: %v", s.steps, err)
	}
}

// next returns the adjudication of the next generation.
func (s *scenario) next(act string) postadjudication.Adjudication {
	a := rig.Release(s.n)
	a.Generation, a.Target = len(s.accepted)+1, s.target()
	switch act {
	case "refund":
		a.Outcome = settlement.Refund
	case "part":
		a.Amount = rig.Euros(400)
	}
	return a
}

// setGenerationAnswer sets how calls of a generation are answered from now on.
func (s *scenario) setGenerationAnswer(generation int, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[generation] = answer
}

// submitNext submits the next generation. If the answer is lost, the receipts decide whether it
// was accepted.
func (s *scenario) submitNext(act, answer string) {
	a := s.next(act)
	s.setGenerationAnswer(a.Generation, answer)
	got := s.MustSubmit(a)
	accepted := got.Reply == postadjudication.Created
	if act == "lost answer" {
		accepted = s.CountReceipts(rig.Receipts{Subtype: receipts.Submitted, Payload: map[string]any{"transaction_receipt_id": a.TransactionReceiptID, "generation": a.Generation}}) > 0
	}
	if accepted {
		s.accepted = append(s.accepted, a)
	}
}

func (s *scenario) activeRun() (background.Run, bool) {
	snap, err := s.Journal().Cases.SubjectSnapshot(context.Background(), "acme", "settlement", s.next("release").TransactionReceiptID)
	if err != nil && !errors.Is(err, refusal.ErrNotFound) {
		s.T.Fatal(err)
	}
	return snap.Run, err == nil
}

// waitUntilIdle waits until nothing of the case can change without a new action.
func (s *scenario) waitUntilIdle() {
	s.Wait(fmt.Sprintf("%q is at rest", s.steps), func() bool {
		return s.QueryBool(`SELECT NOT EXISTS (SELECT FROM recourse.runs WHERE target = $1 AND (state = 'running' OR live AND NOT $2 OR $3 AND outstanding_calls IS NOT NULL))`,
			s.target(), s.breakerOpen, s.isLate)
	})
	if s.isLate { // also answers that a finding declared as not awaited
		s.Wait("every late answer has arrived", func() bool { return s.Health().Stats().Abandoned == 0 })
	}
}

// sendAgain sends an accepted adjudication again by every submit method.
func (s *scenario) sendAgain(a postadjudication.Adjudication) {
	ctx := context.Background()
	before := s.countEffects()
	plain := s.MustSubmit(a)
	tx, err := s.DB.BeginTx(ctx, &sql.TxOptions{})
	if err != nil {
		s.T.Fatal(err)
	}
	inTx, err := s.SubmitTx(ctx, tx, a)
	if err := errors.Join(err, tx.Commit()); err != nil {
		s.T.Fatal(err)
	}
	for _, got := range []postadjudication.Submitted{plain, inTx} {
		known := []postadjudication.Reply{postadjudication.Deduplicated, postadjudication.AlreadyExecuted, postadjudication.DeadLettered, postadjudication.Superseded, postadjudication.Cancelled}
		if latest := a.Generation == len(s.accepted); !slices.Contains(known, got.Reply) || latest == (got.Reply == postadjudication.Superseded) || got.Run.IsZero() {
			s.T.Errorf("%q: generation %d of %d is answered %s", s.steps, a.Generation, len(s.accepted), got.Reply)
		}
		if got.Reply == postadjudication.AlreadyExecuted && got.Settlement.Moved == 0 || got.Reply == postadjudication.Cancelled && got.Actor != "user:ada" {
			s.T.Errorf("%q: generation %d: %+v", s.steps, a.Generation, got)
		}
	}
	if after := s.countEffects(); after != before {
		s.T.Errorf("%q: sent again, %+v becomes %+v", s.steps, before, after)
	}
}

// countEffects counts what a submission can leave behind: receipts, runs and calls.
func (s *scenario) countEffects() [3]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [3]int{
		s.Count(`SELECT count(*) FROM recourse.receipts WHERE case_id IN (SELECT case_id FROM recourse.runs WHERE target = $1) AND subtype <> $2`, s.target(), string(receipts.OutOfBandChangeDetected)),
		s.CountRuns(rig.Runs{Target: s.target()}), s.calls,
	}
}
