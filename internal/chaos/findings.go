package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

const (
	operatorActor  = "user:chaos"
	secondActor    = "user:second" // who runs plans that take two people
	operatorReason = "chaos"
)

// withoutSecondPerson has one person be enough for findings.
func withoutSecondPerson(ctx context.Context) context.Context {
	return postadjudication.WithCaller(ctx, postadjudication.Caller{NoKeys: true})
}

// unknownCase is a case whose outcome is unknown: its newest run, and the operation key of that
// run.
type unknownCase struct {
	transaction string
	run         background.RunID
	key         string
	state       string
	remote      bool // nobody can look it up
}

const unknownSQL = `SELECT c.subject, r.id, encode(r.operation_key, 'hex'), r.state, r.remote FROM recourse.cases c JOIN recourse.runs r ON r.id = c.run_id
	WHERE c.tenant = $1 AND c.unknown_open > 0 AND r.state = ANY($2) AND (r.live OR r.letter = 'open') ORDER BY r.id DESC LIMIT $3`

// unknownCases returns some cases whose outcome is unknown, the newest first.
func (a *testbed) unknownCases(ctx context.Context, limit int, states ...string) (out []unknownCase, err error) {
	rows, err := a.db.QueryContext(ctx, unknownSQL, tenant, pq.Array(states), limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c unknownCase
		var id string
		if err := rows.Scan(&c.transaction, &id, &c.key, &c.state, &c.remote); err != nil {
			return nil, err
		}
		if c.run, err = receipts.ParseRunID(id); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

// lookUp reconciles every unknown case by a lookup, until none is left but of remote workers, or limit is
// over. It returns how many are left.
func (a *testbed) lookUp(ctx context.Context, limit time.Duration) (left int, err error) {
	for began := time.Now(); ; sleep(ctx, 200*time.Millisecond) {
		open, err := a.unknownCases(ctx, 10_000, "dead_lettered")
		remote := 0
		for _, c := range open {
			if c.remote {
				remote++
			}
		}
		if err != nil || len(open) == remote || time.Since(began) > limit {
			return len(open), err
		}
		for _, c := range open {
			if c.remote {
				continue
			}
			_, err := a.operatorService.As(tenant, operatorActor).DeadLetters.Lookup(ctx, c.run)
			if err != nil && !isRefusal(err) {
				return len(open), fmt.Errorf("looking up %s: %w", c.transaction, err)
			}
		}
	}
}

// isRefusal reports whether an action was refused, or came too late: others act on the
// same cases.
func isRefusal(err error) bool {
	var refused *refusal.RefusedError
	var field *refusal.FieldError
	return errors.As(err, &refused) || errors.As(err, &field) || errors.Is(err, background.ErrConflict) || errors.Is(err, refusal.ErrReconcileFirst) ||
		errors.Is(err, refusal.ErrEnded) || errors.Is(err, refusal.ErrNotFound)
}

// finding returns the state of an operation key in the escrow service's own ledger. It reports false while the service
// has accepted a call that has not ended: then nobody knows how it ends, and a person waits.
func (a *testbed) finding(key string) (deadletter.Finding, bool) {
	if a.ledgers().AcceptedOpen(key) {
		return deadletter.Finding{}, false
	}
	f := deadletter.Finding{Reason: operatorReason, Reference: "the ledger", Class: background.NotExecuted, CallOutstanding: true, ContradictsRecord: true} // the ledger is right, whatever was answered
	for _, e := range a.ledgers().Effects() {
		if e.OperationKey == key {
			f.Class, f.OtherAmount, f.CallOutstanding = background.Executed, true, false
			f.Moved += e.Moved.Minor
		}
	}
	return f, true
}

// recordAllFindings records a finding by the ledger for every unknown case, and returns how many
// were recorded and how many are left.
func (a *testbed) recordAllFindings(ctx context.Context) (recorded, left int, err error) {
	open, err := a.unknownCases(ctx, 10_000, "dead_lettered")
	if err != nil {
		return 0, 0, err
	}
	for _, c := range open {
		f, known := a.finding(c.key)
		if !known {
			left++
			continue
		}
		switch _, err := a.operatorService.As(tenant, operatorActor).DeadLetters.Reconcile(withoutSecondPerson(ctx), c.run, f); {
		case err == nil:
			recorded++
		case isRefusal(err):
			left++
		default:
			return recorded, left, fmt.Errorf("finding of %s: %w", c.transaction, err)
		}
	}
	return recorded, left, nil
}
