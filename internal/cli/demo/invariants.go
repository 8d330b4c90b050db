package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication"
)

// What must hold beside the invariants that a service audits by itself. The escrow
// service believes nothing that Recourse says: its ledger is its own.
const (
	invariantOneEffect = "escrow service: at most one effect per operation key"
	invariantOneWay    = "no case paid both ways"
	invariantEffects   = "every settlement has its effect, every effect its settlement or open unknown"
	invariantTasks     = "every live run has a bell"
	invariantSum       = "accepted = settled + refunded + partially settled + live + cancelled + letters"
	verdictOK          = "ok"
)

// Invariant is one thing that must be true after any fault.
type Invariant struct {
	Name    string
	Checked string // how much was looked at, for people
	Verdict string // "ok", or the first thing that broke it
}

func (i Invariant) ok() bool { return i.Verdict == verdictOK }

// checkInvariants holds the evidence against the audit, the escrow service's ledger and
// Redis.
func (d *Demo) checkInvariants(ctx context.Context, accepted int, e *evidence, audit *postadjudication.Audit) ([]Invariant, error) {
	var out []Invariant
	checked := map[string]string{
		postadjudication.InvariantAccounted: count(audit.Cases, "case"), postadjudication.InvariantBudgets: count(audit.Runs, "run"),
		postadjudication.InvariantLetters: count(e.places()[placeDeadLetter], "letter"), postadjudication.InvariantChains: count(audit.Chains, "chain"),
		postadjudication.InvariantFold: count(int(audit.Receipts), "receipt"), postadjudication.InvariantEscrows: count(audit.Cases, "case"),
		postadjudication.InvariantOrder: count(int(audit.Receipts), "receipt"),
	}
	for _, name := range postadjudication.Invariants {
		out = append(out, Invariant{name, checked[name], audit.Verdict(name)})
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
		Invariant{invariantTasks, count(e.places()[placeLive], "live run"), tasks},
		Invariant{invariantSum, count(accepted, "adjudication"), checkSum(accepted, e)},
	), nil
}

// checkOneWay looks for a transaction that was both released and refunded.
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

// checkEffects compares what receipts say was moved under each operation key with what
// the escrow service moved.
func checkEffects(effects []fakeescrow.Effect, e *evidence) string {
	said, open := map[string]int64{}, map[string]bool{}
	for _, x := range e.runs {
		said[x.operation] = max(said[x.operation], x.moved)
		if x.Class == background.Unknown {
			open[x.operation] = true
		}
	}
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
			return fmt.Sprintf("operation key %.12s…: receipts say %d moved, the escrow service knows nothing of it", key, moved)
		}
	}
	return verdictOK
}

// checkTasks looks for the task of every live run.
func (d *Demo) checkTasks(ctx context.Context, e *evidence) (verdict string, err error) {
	inspector := asynq.NewInspector(d.main.Redis)
	defer func() { err = errors.Join(err, inspector.Close()) }()
	for _, x := range e.runs {
		if !x.State.Live() {
			continue
		}
		// The run may have been rung for again, or have ended, since it was read.
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

// checkSum adds the places up.
func checkSum(accepted int, e *evidence) string {
	at := e.places()
	total := len(e.runs) - at[placeNowhere]
	switch {
	case at[placeNowhere] > 0:
		return fmt.Sprintf("%d runs are nowhere", at[placeNowhere])
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
