package demo

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// receiptPage is how many receipts are read at once.
const receiptPage = 500

// parsedReceipt is a receipt with its parsed payload.
type parsedReceipt struct {
	receipts.Receipt
	payload receipts.Payload
}

// runEvidence is one run from the journal and its receipts.
type runEvidence struct {
	casestatus.Status
	transaction transaction
	currency    string
	asked       int64
	reserved    int64  // reserved by its case
	operation   string // operation key
	moved       int64  // moved by the run's calls, from the receipts
	end         settlement.Status
	trail       []parsedReceipt
}

// evidence is the state of everything that was submitted.
type evidence struct {
	runs        []runEvidence
	cases       []casestatus.Case // without their runs
	unknownOpen int
	counts      map[receipts.Subtype]int
	waits       []retryWait
}

// retryWait is the wait between two attempts: planned, and how late the second one started.
type retryWait struct{ planned, lateness time.Duration }

// collect reads every case and its receipts.
func (d *Demo) collect(ctx context.Context, transactions []transaction) (*evidence, error) {
	e := &evidence{counts: map[receipts.Subtype]int{}}
	for _, t := range transactions {
		c, err := d.main.Service.Case(ctx, t.tenant, t.id)
		if err != nil {
			return nil, err
		}
		trail, err := d.readReceipts(ctx, t.tenant, c.Case)
		if err != nil {
			return nil, err
		}
		e.add(t, c, trail)
	}
	return e, nil
}

func (d *Demo) readReceipts(ctx context.Context, tenant string, caseID background.CaseID) ([]parsedReceipt, error) {
	var out []parsedReceipt
	for {
		page, err := d.main.Service.Receipts(ctx, tenant, caseID, int64(len(out)), receiptPage)
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			p, err := r.Payload()
			if err != nil {
				return nil, err
			}
			out = append(out, parsedReceipt{r, p})
		}
		if len(page) < receiptPage {
			return out, nil
		}
	}
}

func (e *evidence) add(t transaction, c casestatus.Case, trail []parsedReceipt) {
	e.unknownOpen += c.UnknownOpen
	booked := c
	booked.Runs = nil
	e.cases = append(e.cases, booked)
	for _, r := range trail {
		e.counts[r.Subtype]++
	}
	for _, status := range c.Runs {
		x := runEvidence{Status: status, transaction: t, currency: c.Currency, reserved: c.Reserved}
		for _, r := range trail {
			if r.Run == status.Run {
				x.apply(r)
			}
		}
		e.waits = append(e.waits, retryWaits(x.trail)...)
		e.runs = append(e.runs, x)
	}
}

// apply adds one receipt of the run.
func (x *runEvidence) apply(r parsedReceipt) {
	x.trail = append(x.trail, r)
	p := r.payload
	switch r.Subtype {
	case receipts.Submitted:
		x.operation, x.asked = p.OperationKey, p.Amount
	case receipts.AttemptSucceeded, receipts.AnsweredLate, receipts.Reconciled:
		// The escrow service reports the total of the key, so the largest counts.
		x.moved = max(x.moved, p.Moved)
	}
	if p.Settlement != nil {
		x.end = settlement.Status(p.Settlement.ProgressionStatus)
	}
}

// retryWaits returns the wait of each scheduled retry that was followed by an attempt.
func retryWaits(trail []parsedReceipt) []retryWait {
	var out []retryWait
	var due time.Time
	var asked time.Duration
	for _, r := range trail {
		switch r.Subtype {
		case receipts.RetryScheduled:
			due, asked = r.payload.NextRetryAt, r.payload.NextRetryAt.Sub(r.At)
		case receipts.AttemptStarted:
			if !due.IsZero() {
				out = append(out, retryWait{planned: asked, lateness: r.At.Sub(due)})
			}
			due = time.Time{}
		}
	}
	return out
}

// The places of an accepted adjudication. Each is in exactly one.
const (
	placeSettled    = "settled"
	placeRefunded   = "refunded"
	placePartial    = "partially_settled"
	placeDeadLetter = "dead_lettered"
	placeCancelled  = "cancelled"
	placeLive       = "live"
	placeNowhere    = ""
)

// place returns where a run is. A letter that was closed because the money had moved counts as
// settled, refunded or partially settled.
func (x runEvidence) place() string {
	paid := x.State == background.Succeeded || x.Letter == background.LetterReconciled && x.moved > 0
	switch {
	case x.State.Live():
		return placeLive
	case x.State == background.Cancelled:
		return placeCancelled
	case paid && x.end == settlement.Settled:
		return placeSettled
	case paid && x.end == settlement.Refunded:
		return placeRefunded
	case paid && x.end == settlement.PartiallySettled:
		return placePartial
	case x.State == background.DeadLettered && x.Letter != background.NoLetter:
		return placeDeadLetter
	}
	return placeNowhere
}

// openLetters counts the open dead letters.
func (e *evidence) openLetters() (n int) {
	for _, x := range e.runs {
		if x.place() == placeDeadLetter && x.Letter == background.LetterOpen {
			n++
		}
	}
	return n
}

// places counts the runs by place.
func (e *evidence) places() map[string]int {
	out := map[string]int{}
	for _, x := range e.runs {
		out[x.place()]++
	}
	return out
}
