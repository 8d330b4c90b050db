package demo

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// receiptPage is how many receipts are read at once.
const receiptPage = 500

// told is one receipt with its particulars read.
type told struct {
	receipts.Receipt
	payload receipts.Payload
}

// execution is one run, as the journal and its receipts have it.
type execution struct {
	postadjudication.Status
	transaction transaction
	currency    string
	asked       int64
	reserved    int64  // of its case
	operation   string // operation key
	moved       int64  // by the run's own calls, as receipts say
	end         settlement.Status
	trail       []told
}

// evidence is everything that Recourse says of what was handed over.
type evidence struct {
	runs        []execution
	unknownOpen int
	counts      map[receipts.Subtype]int
	gaps        []gap
}

// gap is one wait between two attempts: what was promised and what came of it.
type gap struct{ asked, late time.Duration }

// collect reads every case with its receipts.
func (d *Demo) collect(ctx context.Context, transactions []transaction) (*evidence, error) {
	e := &evidence{counts: map[receipts.Subtype]int{}}
	for _, t := range transactions {
		c, err := d.main.Service.Case(ctx, t.tenant, t.id)
		if err != nil {
			return nil, err
		}
		trail, err := d.trail(ctx, t.tenant, c.Case)
		if err != nil {
			return nil, err
		}
		e.add(t, c, trail)
	}
	return e, nil
}

func (d *Demo) trail(ctx context.Context, tenant string, kase background.CaseID) ([]told, error) {
	var out []told
	for {
		page, err := d.main.Service.Receipts(ctx, tenant, kase, int64(len(out)), receiptPage)
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			p, err := r.Payload()
			if err != nil {
				return nil, err
			}
			out = append(out, told{r, p})
		}
		if len(page) < receiptPage {
			return out, nil
		}
	}
}

func (e *evidence) add(t transaction, c postadjudication.CaseStatus, trail []told) {
	e.unknownOpen += c.UnknownOpen
	for _, r := range trail {
		e.counts[r.Subtype]++
	}
	for _, status := range c.Runs {
		x := execution{Status: status, transaction: t, currency: c.Currency, reserved: c.Reserved}
		for _, r := range trail {
			if r.Run == status.Run {
				x.tell(r)
			}
		}
		e.gaps = append(e.gaps, gaps(x.trail)...)
		e.runs = append(e.runs, x)
	}
}

// tell takes in one receipt of the run.
func (x *execution) tell(r told) {
	x.trail = append(x.trail, r)
	p := r.payload
	switch r.Subtype {
	case receipts.Submitted:
		x.operation, x.asked = p.OperationKey, p.Amount
	case receipts.AttemptSucceeded, receipts.AnsweredLate, receipts.Reconciled:
		// The escrow service states what the key moved in all, so the largest counts.
		x.moved = max(x.moved, p.Moved)
	}
	if p.Settlement != nil {
		x.end = settlement.Status(p.Settlement.ProgressionStatus)
	}
}

// gaps pairs each announced retry with the attempt that followed it.
func gaps(trail []told) []gap {
	var out []gap
	var due time.Time
	var asked time.Duration
	for _, r := range trail {
		switch r.Subtype {
		case receipts.RetryScheduled:
			due, asked = r.payload.NextRetryAt, r.payload.NextRetryAt.Sub(r.At)
		case receipts.AttemptStarted:
			if !due.IsZero() {
				out = append(out, gap{asked: asked, late: r.At.Sub(due)})
			}
			due = time.Time{}
		}
	}
	return out
}

// Where an accepted adjudication can be. Each is in exactly one place.
const (
	placeSettled   = "settled"
	placeRefunded  = "refunded"
	placePartial   = "partially_settled"
	placeLetter    = "dead_lettered"
	placeCancelled = "cancelled"
	placeLive      = "live"
	placeNowhere   = ""
)

// place tells where a run is. A letter that was closed because the money had moved
// after all is where the money is.
func (x execution) place() string {
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
		return placeLetter
	}
	return placeNowhere
}

// openLetters counts the dead letters that wait for a person.
func (e *evidence) openLetters() (n int) {
	for _, x := range e.runs {
		if x.place() == placeLetter && x.Letter == background.LetterOpen {
			n++
		}
	}
	return n
}

// places counts the runs by where they are.
func (e *evidence) places() map[string]int {
	out := map[string]int{}
	for _, x := range e.runs {
		out[x.place()]++
	}
	return out
}
