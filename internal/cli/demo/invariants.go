package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/settlement"
)

// The invariants of a demonstration, in addition to those of an audit. The escrow service keeps its
// own ledger, so they compare two independent records.
const (
	invariantOneEffect = "escrow service: at most one effect per operation key"
	invariantOneWay    = "no case paid both ways"
	invariantEffects   = "every settlement has its effect, every effect its settlement or open unknown"
	invariantBooked    = "cases and escrows have booked what the escrow service moved"
	invariantTasks     = "every live run has a task"
	invariantSum       = "accepted = settled + refunded + partially settled + live + cancelled + letters"
	verdictOK          = "ok"
)

// Invariant is a condition that must hold after any fault, and its verdict.
type Invariant struct {
	Name    string
	Checked string // how much was checked, for people
	Verdict string // "ok", or the first break
}

func (i Invariant) ok() bool { return i.Verdict == verdictOK }

// checkInvariants compares the evidence with the audit, the escrow service's ledger and Redis.
func (d *Demo) checkInvariants(ctx context.Context, accepted int, e *evidence, audited *audit.Report) ([]Invariant, error) {
	var out []Invariant
	checked := map[string]string{
		audit.InvariantAccounted: count(audited.Cases, "case"), audit.InvariantBudgets: count(audited.Runs, "run"),
		audit.InvariantLetters: count(e.places()[placeDeadLetter], "letter"), audit.InvariantChains: count(audited.Chains, "chain"),
		audit.InvariantFold: count(int(audited.Receipts), "receipt"), audit.InvariantEscrows: count(audited.Cases, "case"),
		audit.InvariantOrder: count(int(audited.Receipts), "receipt"),
	}
	for _, name := range audit.Invariants {
		out = append(out, Invariant{name, checked[name], audited.Verdict(name)})
	}
	effects := d.main.EmbeddedEscrow.Effects()
	tasks, err := d.checkTasks(ctx, e)
	if err != nil {
		return nil, err
	}
	doubleEffects := verdictOK
	if n := d.main.EmbeddedEscrow.DoubleEffects(); n > 0 {
		doubleEffects = fmt.Sprintf("%d effects too many", n)
	}
	return append(out,
		Invariant{invariantOneEffect, count(d.main.EmbeddedEscrow.Totals().Keys, "key"), doubleEffects},
		Invariant{invariantOneWay, count(len(effects), "effect"), checkOneWay(effects)},
		Invariant{invariantEffects, count(len(effects), "effect"), checkEffects(effects, e)},
		Invariant{invariantBooked, count(len(e.cases), "case"), checkBooked(effects, e)},
		Invariant{invariantTasks, count(e.places()[placeLive], "live run"), tasks},
		Invariant{invariantSum, count(accepted, "adjudication"), checkSum(accepted, e)},
	), nil
}

// checkOneWay returns a transaction that was both released and refunded, or "ok".
func checkOneWay(effects []fakeescrow.Effect) string {
	ways := map[transaction]string{}
	for _, f := range effects {
		t := transaction{f.Tenant, f.TransactionReceiptID}
		if way, paid := ways[t]; paid && way != string(f.Outcome) {
			return fmt.Sprintf("%s of %s was paid both ways", t.id, t.tenant)
		}
		ways[t] = string(f.Outcome)
	}
	return verdictOK
}

// checkEffects compares the amount moved under each operation key in the receipts and in the
// escrow service's ledger.
func checkEffects(effects []fakeescrow.Effect, e *evidence) string {
	said, open := e.operations()
	done := map[string]int64{}
	for _, f := range effects {
		done[f.OperationKey] += f.Moved.Minor
	}
	for key, moved := range done {
		if said[key] != moved && !open[key] {
			return fmt.Sprintf("operation key %.12s…: the escrow service moved %d, receipts say %d", key, moved, said[key])
		}
	}
	for key, moved := range said {
		if _, paid := done[key]; !paid && moved > 0 {
			return fmt.Sprintf("operation key %.12s…: receipts say %d moved, the escrow service has no payment for it", key, moved)
		}
	}
	return verdictOK
}

// operations returns what the receipts say was moved under each operation key, and the keys of unknown runs.
func (e *evidence) operations() (said map[string]int64, open map[string]bool) {
	said, open = map[string]int64{}, map[string]bool{}
	for _, x := range e.runs {
		said[x.operation] = max(said[x.operation], x.moved)
		if x.Class == background.Unknown {
			open[x.operation] = true
		}
	}
	return said, open
}

// checkBooked compares the sums of each case, by way and currency, and of each escrow with the escrow service's
// ledger. A payment that is openly unknown is not booked yet.
func checkBooked(effects []fakeescrow.Effect, e *evidence) string {
	type way struct {
		transaction
		currency string
		outcome  settlement.Outcome
	}
	type account struct{ tenant, reference string }
	said, open := e.operations()
	moved, committed := map[way]int64{}, map[account]int64{}
	for _, f := range effects {
		if !open[f.OperationKey] || said[f.OperationKey] > 0 {
			moved[way{transaction{f.Tenant, f.TransactionReceiptID}, f.Moved.Currency, f.Outcome}] += f.Moved.Minor
		}
	}
	for _, c := range e.cases {
		t := transaction{c.Tenant, c.Transaction}
		released, refunded := moved[way{t, c.Currency, settlement.Release}], moved[way{t, c.Currency, settlement.Refund}]
		if c.Released != released || c.Refunded != refunded {
			return fmt.Sprintf("%s of %s: the escrow service released %d and refunded %d %s, the case has booked %d and %d",
				t.id, t.tenant, released, refunded, c.Currency, c.Released, c.Refunded)
		}
		committed[account{c.Tenant, c.Escrow}] += released + refunded - c.Returned + c.Reserved
	}
	for _, c := range e.cases {
		if sum := committed[account{c.Tenant, c.Escrow}]; c.Committed != sum {
			return fmt.Sprintf("escrow %s of %s: its cases were paid or have reserved %d %s, and it has committed %d", c.Escrow, c.Tenant, sum, c.Currency, c.Committed)
		}
	}
	return verdictOK
}

// checkTasks checks that every live run has a task in Redis.
func (d *Demo) checkTasks(ctx context.Context, e *evidence) (verdict string, err error) {
	inspector := asynq.NewInspector(d.main.Redis)
	defer func() { err = errors.Join(err, inspector.Close()) }()
	for _, x := range e.runs {
		if !x.State.Live() {
			continue
		}
		// The run may have a new task, or have ended, since it was read.
		now, err := d.main.Service.Status(ctx, x.Tenant, x.Run)
		if err != nil {
			return "", err
		}
		if !now.State.Live() {
			continue
		}
		_, err = inspector.GetTaskInfo(now.Queue, now.Dispatch)
		if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
			return fmt.Sprintf("run %s is %s and has no task in Redis", x.Run, now.State), nil
		}
		if err != nil {
			return "", err
		}
	}
	return verdictOK, nil
}

// checkSum compares the number of runs in all places with the number of accepted adjudications.
func checkSum(accepted int, e *evidence) string {
	at := e.places()
	total := len(e.runs) - at[placeNowhere]
	switch {
	case at[placeNowhere] > 0:
		return fmt.Sprintf("%d runs are in no place", at[placeNowhere])
	case total != accepted:
		return fmt.Sprintf("%d accepted, %d found", accepted, total)
	}
	return verdictOK
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
