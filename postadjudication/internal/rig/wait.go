package rig

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Waits waits for conditions: each method returns once its condition holds, and fails the test
// after two minutes. Runs, cases and letters are those of the tenant acme, as Release makes them.
type Waits struct {
	StoredWaits
	service *postadjudication.Service
}

// WaitLetter waits until a run is an open dead letter.
func (w Waits) WaitLetter(run background.RunID) {
	w.t.Helper()
	w.WaitStatus("the run is an open dead letter", run, func(s casestatus.Status) bool { return s.Letter == background.LetterOpen })
}

// WaitLetters waits until a number of dead letters are open.
func (w Waits) WaitLetters(n int) {
	w.t.Helper()
	w.Wait("dead letters are open", func() bool {
		open, err := w.service.As("acme", "").DeadLetters.Count(context.Background(), deadletter.Filter{Status: background.LetterOpen})
		if err != nil {
			w.t.Fatal(err)
		}
		return open.Total == int64(n)
	})
}

// WaitState waits until a run is in a state.
func (w Waits) WaitState(run background.RunID, state background.State) {
	w.t.Helper()
	w.WaitStatus("the run is "+string(state), run, func(s casestatus.Status) bool { return s.State == state })
}

// WaitStatus waits for a condition of a run.
func (w Waits) WaitStatus(what string, run background.RunID, ok func(casestatus.Status) bool) {
	w.t.Helper()
	var last casestatus.Status
	reached := false
	defer func() {
		if !reached {
			w.t.Logf("the run: %+v", last)
		}
	}()
	w.Wait(what, func() bool {
		s, err := w.service.Status(context.Background(), "acme", run)
		if err != nil {
			w.t.Fatal(err)
		}
		last, reached = s, ok(s)
		return reached
	})
}

// WaitCase waits for a condition of the case of an adjudication.
func (w Waits) WaitCase(what string, of postadjudication.Adjudication, ok func(casestatus.Case) bool) {
	w.t.Helper()
	w.Wait(what, func() bool {
		c, err := w.service.Case(context.Background(), of.Tenant, of.TransactionReceiptID)
		if err != nil {
			w.t.Fatal(err)
		}
		return ok(c)
	})
}

// WaitReceipt waits until a receipt of a subtype is in a case.
func (w Waits) WaitReceipt(id receipts.CaseID, subtype receipts.Subtype) {
	w.t.Helper()
	w.Wait("a receipt "+string(subtype), func() bool {
		chain, err := w.service.Receipts(context.Background(), "acme", id, 0, 1000)
		if err != nil {
			w.t.Fatal(err)
		}
		return slices.ContainsFunc(chain, func(r receipts.Receipt) bool { return r.Subtype == subtype })
	})
}

// WaitSettled waits until a number of cases are settled.
func (w Waits) WaitSettled(n int) {
	w.t.Helper()
	w.Wait("cases are settled", func() bool {
		settled := casestatus.Filter{States: []string{string(settlement.Settled)}}
		page, err := w.service.As("acme", "").Cases.List(context.Background(), settled, "", 1)
		if err != nil {
			w.t.Fatal(err)
		}
		return page.Total == int64(n)
	})
}

// WaitPlanned waits for a condition of a plan of acme.
func (w Waits) WaitPlanned(what string, id uuid.UUID, ok func(bulk.Plan) bool) {
	w.t.Helper()
	w.Wait(what, func() bool {
		b, err := w.service.As("acme", "").Bulk.Get(context.Background(), id)
		if err != nil {
			w.t.Fatal(err)
		}
		return ok(b)
	})
}
