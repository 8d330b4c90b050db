package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// people are the acts of people and callers while machines are dead or frozen. All of them
// are correct: a finding agrees with the escrow service's ledger, and a new decision is made
// only where the one before paid nothing.
var people = []fault{
	{name: "people-find", weight: 6, byPeople: true, inject: peopleFind},
	{name: "people-find-waiting", weight: 2, byPeople: true, inject: peopleFindWaiting},
	{name: "people-decide-opposite", weight: 5, byPeople: true, inject: readjudicate(opposite)},
	{name: "people-decide-higher", weight: 3, byPeople: true, inject: readjudicate(same)},
	{name: "people-cancel-and-resend", weight: 3, byPeople: true, inject: cancelAndResend},
	{name: "people-fork", weight: 4, byPeople: true, inject: forkOne},
	{name: "people-bulk", weight: 2, byPeople: true, inject: bulkFork},
	{name: "people-purge", weight: 1, byPeople: true, onlyByName: true, inject: purgeOne},
	{name: "people-return", weight: 2, byPeople: true, inject: returnOne},
	{name: "people-breaker", weight: 1, byPeople: true, inject: openBreaker, heal: releaseBreaker},
	{name: "caller-transaction", weight: 4, byPeople: true, inject: openTransaction},
}

func same(o settlement.Outcome) settlement.Outcome { return o }

func opposite(o settlement.Outcome) settlement.Outcome {
	if o == settlement.Release {
		return settlement.Refund
	}
	return settlement.Release
}

// peopleFind records findings of some letters whose outcome is unknown.
func peopleFind(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	return a.findSome(ctx, rng, "dead_lettered")
}

// peopleFindWaiting records findings of runs that wait for their next attempt.
func peopleFindWaiting(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	return a.findSome(ctx, rng, "scheduled", "pending")
}

// findSome records no finding while the network to the escrow service may hold back a call
// that still pays: a person waits until it is healed, or states that a call is outstanding.
func (a *testbed) findSome(ctx context.Context, rng *rand.Rand, states ...string) (string, error) {
	open, err := a.unknownCases(ctx, 20, states...)
	if err != nil {
		return "", err
	}
	rng.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	done := 0
	for _, c := range open[:min(len(open), 5)] {
		if !a.proxies["escrow"].idle() {
			return fmt.Sprintf("%d found; a call may be on its way", done), nil
		}
		sleep(ctx, ledgerDelay)
		f, known := a.finding(c.key)
		if !known {
			continue
		}
		_, err := a.operatorService.As(tenant, operatorActor).DeadLetters.Reconcile(ctx, c.run, f)
		if planned := (*bulk.SecondPersonError)(nil); errors.As(err, &planned) {
			_, err = a.operatorService.As(tenant, secondActor).Bulk.Run(ctx, planned.Plan.ID, planned.Plan.Hash)
		}
		switch {
		case err == nil:
			done++
		case !isRefusal(err):
			return "", err
		}
	}
	return fmt.Sprintf("%d of %d found", done, len(open)), nil
}

// ledgerDelay is within which a call that has left the proxy is in the ledger.
const ledgerDelay = 100 * time.Millisecond

// letterCase is an open letter that is known to be not executed.
type letterCase struct {
	transaction string
	run         background.RunID
	generation  int
	outcome     settlement.Outcome
}

const letterSQL = `SELECT c.subject, r.id, c.generation, c.adjudication FROM recourse.cases c JOIN recourse.runs r ON r.id = c.run_id
	WHERE c.tenant = $1 AND r.letter = 'open' AND c.unknown_open = 0 AND c.moved = 0 AND c.released = 0 AND c.refunded = 0 ORDER BY r.id DESC LIMIT 100`

// randomLetter returns one of the newest; nil when there is none.
func (a *testbed) randomLetter(ctx context.Context, rng *rand.Rand) (*letterCase, error) {
	rows, err := a.db.QueryContext(ctx, letterSQL, tenant)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []letterCase
	for rows.Next() {
		var l letterCase
		var id string
		if err := rows.Scan(&l.transaction, &id, &l.generation, &l.outcome); err != nil {
			return nil, err
		}
		if l.run, err = receipts.ParseRunID(id); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	if len(all) == 0 || rows.Err() != nil {
		return nil, rows.Err()
	}
	return &all[rng.IntN(len(all))], nil
}

// readjudicate makes a decision of a higher generation about a case whose letter is open.
func readjudicate(outcome func(settlement.Outcome) settlement.Outcome) func(context.Context, *testbed, *rand.Rand) (string, error) {
	return func(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
		l, err := a.randomLetter(ctx, rng)
		if err != nil || l == nil {
			return "no letter", err
		}
		for _, e := range a.ledgers().Effects() {
			if e.TransactionReceiptID == l.transaction {
				return l.transaction + " was paid: nothing is decided", nil
			}
		}
		ad, ok := a.load.adjudicationOf(l.transaction)
		if !ok {
			return "no letter of the load", nil
		}
		ad.Generation, ad.Outcome = l.generation+1, outcome(l.outcome)
		ad.AdjudicationID = fmt.Sprintf("%s_%d_%s", ad.AdjudicationID, ad.Generation, ad.Outcome)
		ad.Payload = fmt.Appendf(nil, `{"simulate":%q}`, []string{"ok", "ok", "drop", "refused", "retryable,ok"}[rng.IntN(5)])
		reply, err := a.submit(ctx, ad)
		return fmt.Sprintf("%s: %s by generation %d: %s", l.transaction, ad.Outcome, ad.Generation, reply), err
	}
}

// submit submits by the operators' service.
func (a *testbed) submit(ctx context.Context, ad postadjudication.Adjudication) (postadjudication.Reply, error) {
	a.load.accepted.noteSubmitted(ad)
	s, err := a.operatorService.Submit(ctx, ad)
	if err != nil {
		return "", err // it may have been accepted
	}
	a.load.accepted.noteReply(ad, worker.Reply{Reply: s.Reply, Run: s.Run.String()})
	return s.Reply, nil
}

// cancelAndResend cancels a decision, and submits it again unchanged, as a sender does that
// does not know of the cancel.
func cancelAndResend(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	var id, transaction string
	err := a.db.QueryRowContext(ctx, `SELECT r.id, c.subject FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id
		WHERE r.live AND r.family = 'settlement' AND c.generation = 1 AND c.adjudication = 'release' ORDER BY random() LIMIT 1`).Scan(&id, &transaction)
	if err != nil {
		return "nothing is live", nil
	}
	run, err := receipts.ParseRunID(id)
	if err != nil {
		return "", err
	}
	status, err := a.operatorService.As(tenant, operatorActor).Cases.Cancel(ctx, run, operatorReason)
	if err != nil && !isRefusal(err) {
		return "", err
	}
	ad, ok := a.load.adjudicationOf(transaction)
	if !ok {
		return transaction + " is not of the load", nil
	}
	sleep(ctx, time.Duration(rng.IntN(400))*time.Millisecond)
	reply, err := a.submit(ctx, ad)
	return fmt.Sprintf("%s is %s; again: %s", transaction, status.State, reply), err
}

func forkOne(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	l, err := a.randomLetter(ctx, rng)
	if err != nil || l == nil {
		return "no letter", err
	}
	s, err := a.operatorService.As(tenant, operatorActor).DeadLetters.Fork(ctx, l.run, deadletter.Fork{Reason: operatorReason})
	switch {
	case err == nil:
		a.load.accepted.noteOtherRun(worker.Reply{Reply: postadjudication.Created, Run: s.Run.String()})
		return l.transaction + ": forked", nil
	case !isRefusal(err):
		return "", err
	}
	return l.transaction + ": refused", nil
}

// bulkFork forks many letters by a plan; every third is cancelled in the middle of it.
func bulkFork(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	q := bulk.Request{Action: bulk.Fork, Reason: operatorReason,
		Filter: deadletter.Filter{Status: background.LetterOpen, Class: background.NotExecuted}}
	cancelled := rng.IntN(3) == 0
	if cancelled {
		q.Throttle = 2
	}
	b, err := a.operatorService.As(tenant, operatorActor).Bulk.Plan(ctx, q)
	var nothing *bulk.NothingSelectedError
	if errors.As(err, &nothing) {
		return "nothing to plan", nil
	}
	if err != nil || b.Progress.Pending == 0 {
		return "a plan of what is refused", err
	}
	if _, err := a.operatorService.As(tenant, secondActor).Bulk.Run(ctx, b.ID, b.Hash); err != nil {
		return "", err
	}
	if cancelled {
		_, err = a.operatorService.As(tenant, operatorActor).Bulk.Cancel(ctx, b.ID, operatorReason)
	}
	return fmt.Sprintf("%d letters, cancelled: %t", b.Progress.Pending, cancelled), err
}

func purgeOne(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	l, err := a.randomLetter(ctx, rng)
	if err != nil || l == nil {
		return "no letter", err
	}
	plans := a.operatorService.As(tenant, operatorActor).Bulk
	b, err := plans.Plan(ctx, bulk.Request{Action: bulk.Purge, Reason: operatorReason, Filter: deadletter.Filter{Status: background.LetterOpen, Transaction: l.transaction}})
	var nothing *bulk.NothingSelectedError
	if errors.As(err, &nothing) {
		return "nothing to plan", nil
	}
	if err == nil {
		b, err = plans.RunHere(withoutSecondPerson(ctx), b.ID, b.Hash)
	}
	return fmt.Sprintf("%s: %d letters", l.transaction, b.Progress.Done), err
}

func openBreaker(ctx context.Context, a *testbed, _ *rand.Rand) (string, error) {
	_, err := a.operatorService.As(tenant, operatorActor).Breakers.Open(ctx, escrow.DefaultTarget, operatorReason)
	return "", err
}

func releaseBreaker(ctx context.Context, a *testbed) error {
	for ctx.Err() == nil {
		_, err := a.operatorService.As(tenant, operatorActor).Breakers.Release(ctx, escrow.DefaultTarget, operatorReason)
		if err == nil || errors.Is(err, postadjudication.ErrBreakerNotOpen) { // it could not be opened, or is closed again
			return nil
		}
		sleep(ctx, 200*time.Millisecond) // Postgres may be away
	}
	return ctx.Err()
}

// openTransaction has a caller submit on an escrow that others use too, in a transaction
// that stays open for seconds and is then committed or rolled back.
func openTransaction(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	h := a.fleet.anyReady(rng)
	if h == nil {
		return "no worker", nil
	}
	n := a.load.latest()
	ad := drawAdjudication(rand.New(rand.NewPCG(rng.Uint64(), 1)), firstExtra+rng.IntN(1<<30))
	ad.EscrowReference, ad.Amount.Minor, ad.Held.Minor = sharedEscrow(n), 100, sharedHeld
	c := worker.Command{Do: worker.OpenTx, Tenant: tenant, Adjudication: ad, Offset: time.Duration(1+rng.IntN(4000)) * time.Millisecond, Attempts: rng.IntN(2)}
	a.load.accepted.noteSubmitted(ad)
	a.load.open.Go(func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		r, err := h.ask(limited, c)
		if err == nil && r.Error == "" {
			a.load.count(c.Do + ": " + string(r.Reply))
			a.load.accepted.noteReply(ad, r)
		}
	})
	return fmt.Sprintf("%s on %s, for %s, committed: %t", ad.TransactionReceiptID, ad.EscrowReference, c.Offset, c.Attempts == 0), nil
}

// adjudicationOf returns the first adjudication of the load for a transaction.
func (l *load) adjudicationOf(transaction string) (postadjudication.Adjudication, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(transaction, "txr_"))
	if err != nil || n >= firstExtra {
		return postadjudication.Adjudication{}, false
	}
	return l.draw(rand.New(rand.NewPCG(l.seed, uint64(n))), n), true
}
