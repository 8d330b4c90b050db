package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/receipts"
)

// statement is what an executor, a lookup or a remote worker stated under an operation key.
type statement struct {
	worker.Statement
	class background.Class
	known bool // the product must have it on record
}

// recordingTime is how long a worker may take to record a statement that its executor has returned, while servers fail.
const recordingTime = 30 * time.Second

// receive keeps a statement of the worker.
func (h *workerProcess) receive(s worker.Statement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.received = append(h.received, receivedAt{s, time.Now()})
}

// receivedAt is a statement with the time at which it was made.
type receivedAt struct {
	worker.Statement
	at time.Time
}

func (h *workerProcess) noteEnd() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endedAt = time.Now()
}

// statements returns what all executors have stated. A statement need not be on record if its worker ended too soon
// after it, or if it is of a lookup: a person may have decided meanwhile.
func (f *fleet) statements() (out []statement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.started {
		h.mu.Lock()
		for _, s := range h.received {
			known := !s.Lookup && (h.endedAt.IsZero() || h.endedAt.Sub(s.at) > recordingTime)
			out = append(out, statement{s.Statement, background.Executed, known})
		}
		h.mu.Unlock()
	}
	return out
}

// unrecordedRestSQL reads the newest run of an operation key unless its receipts state a sum.
const unrecordedRestSQL = `SELECT r.id FROM recourse.runs r WHERE r.operation_key = decode($1, 'hex')
	AND NOT EXISTS (SELECT FROM recourse.receipts q JOIN recourse.runs o ON o.id = q.run_id WHERE o.operation_key = r.operation_key AND (q.body::jsonb -> 'payload' ->> 'moved')::bigint >= $2)
	ORDER BY r.id DESC LIMIT 1`

// recordRests records findings of payments whose rest the escrow service could state to no worker that lived: the
// worker had died, or the answer was lost on its way. What a living worker was told needs none. It returns how many it recorded.
func recordRests(ctx context.Context, a *testbed) (n int, err error) {
	known := map[string]int64{}
	for _, s := range a.fleet.statements() {
		if s.known {
			known[s.Key] = max(known[s.Key], s.Moved)
		}
	}
	for _, e := range a.ledgers().Effects() {
		f, ended := a.finding(e.OperationKey)
		if !ended || !e.Rest || known[e.OperationKey] >= f.Moved {
			continue
		}
		var id string
		if err := a.db.QueryRowContext(ctx, unrecordedRestSQL, e.OperationKey, f.Moved).Scan(&id); errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return n, err
		}
		run, err := receipts.ParseRunID(id)
		if err != nil {
			return n, err
		}
		if _, err := a.operatorService.As(tenant, operatorActor).DeadLetters.Reconcile(withoutSecondPerson(ctx), run, f); err != nil {
			return n, fmt.Errorf("finding of the rest of %s: %w", e.TransactionReceiptID, err)
		}
		n++
	}
	return n, nil
}

// checkStatements compares what was stated under operation keys with the receipts: each sum and reference is on record,
// as a payment or as what contradicts one, and nothing is recorded as a contradiction that nobody stated.
func (v *verification) checkStatements(all []statement, cases map[transaction]*caseTrail) {
	type words struct {
		key, class, reference string
		moved                 int64
	}
	recorded, keys := map[words]bool{}, map[background.RunID]string{}
	stated := map[words]bool{}
	for _, s := range all {
		stated[words{s.Key, string(s.class), s.Reference, s.Moved}] = true
	}
	for _, c := range cases {
		for _, r := range c.receipts {
			if r.Subtype == receipts.Submitted {
				keys[r.Run] = r.p.OperationKey
			}
			w := words{keys[r.Run], r.p.AttemptClass, r.p.Reference, r.p.Moved}
			recorded[w] = true
			if r.Subtype != receipts.Contradicted {
				continue
			}
			v.Contradicted++
			if !stated[w] && !isPerson(r.Actor) {
				v.fail("run %s of %s is contradicted by %s of %d with the reference %q, and nobody stated that", r.Run, c.Transaction, w.class, w.moved, w.reference)
			}
			if w.class == string(background.Executed) && (w.moved > r.p.Recorded || w.moved == r.p.Recorded && w.reference == r.p.RecordedReference) {
				v.fail("run %s of %s is contradicted by %d with the reference %q, which agrees with what is on record", r.Run, c.Transaction, w.moved, w.reference)
			}
		}
	}
	for _, s := range all {
		if s.known && !recorded[words{s.Key, string(s.class), s.Reference, s.Moved}] {
			v.Unrecorded++
			v.fail("attempt %d of run %s stated %s of %d with the reference %q, and no receipt says so", s.Attempt, s.Run, s.class, s.Moved, s.Reference)
		}
	}
}

// isPerson reports whether an actor is one of the people of a run, whose findings agree with the ledger.
func isPerson(actor string) bool { return slices.Contains([]string{operatorActor, secondActor}, actor) }
