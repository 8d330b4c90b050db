package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Event is a receipt of a job, at its place in the order of a tenant's receipts, with what the receipt
// itself does not say. That of a round of retention has no job.
type Event struct {
	Position    int64
	Subtype     receipts.Subtype
	At          time.Time
	Actor       string
	Payload     receipts.Payload
	Run         background.RunID
	ID          string
	Type        string
	Queue       string
	MaxAttempts int
	Attempt     int  // of the payload, without those that were handed back
	ByRule      bool // a rule did it
}

const (
	// MaxEvents bounds the events of one call.
	MaxEvents = 1000
	// eventPage is how many receipts are read at once, and eventPages how often. Receipts of other
	// families count.
	eventPage  = 1000
	eventPages = 10
)

// Events lists events of jobs that the caller may read in their order, strictly after a position; 0 is before the first. It
// returns the position that it has read up to, and whether more receipts follow it: then the list may
// have fewer events than limit, and none. A position is that of a receipt; it never changes.
//
// Errors: *refusal.FieldError for invalid input, of after also if it is beyond the newest position.
func (j Jobs) Events(ctx context.Context, after int64, limit int) (found []Event, upTo Event, more bool, err error) {
	if limit < 1 || limit > MaxEvents {
		return nil, upTo, false, &refusal.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", MaxEvents)}
	}
	last, err := j.s.journal.Receipts.LastNumberOfTenant(ctx, j.tenant)
	if err != nil {
		return nil, upTo, false, err
	}
	if after < 0 || after > last {
		return nil, upTo, false, &refusal.FieldError{Field: "after", Problem: "is not the position of an event of the tenant"}
	}
	upTo.Position = after
	for range eventPages {
		page, err := j.s.journal.Receipts.From(ctx, j.tenant, upTo.Position+1, eventPage)
		if err != nil {
			return nil, upTo, false, err
		}
		part, read, err := j.eventsOf(ctx, page, limit-len(found))
		if err != nil {
			return nil, upTo, false, err
		}
		found = append(found, part...)
		if read > 0 {
			upTo.Position, upTo.At = page[read-1].Number, page[read-1].At
		}
		if read < len(page) || len(found) == limit {
			return found, upTo, read < len(page) || len(page) == eventPage, nil
		}
		if len(page) < eventPage {
			return found, upTo, false, nil
		}
	}
	return found, upTo, true, nil
}

type numbered = journal.NumberedReceipt

// eventsOf returns the first events of numbered receipts, at most limit, and how many receipts it read.
func (j Jobs) eventsOf(ctx context.Context, page []numbered, limit int) (out []Event, read int, err error) {
	ids := make([]background.RunID, 0, len(page))
	for _, r := range page {
		if !r.Run.IsZero() {
			ids = append(ids, r.Run)
		}
	}
	labels, err := j.s.journal.Cases.JobLabels(ctx, j.tenant, ids)
	if err != nil {
		return nil, 0, err
	}
	may, err := casework.Permitted(ctx, j.s.journal, j.tenant, ids)
	if err != nil {
		return nil, 0, err
	}
	backs := handBacks{j, map[receipts.CaseID][]receipts.Receipt{}}
	for _, r := range page {
		label, ofJob := labels[r.Run]
		if ofJob = ofJob && label.Family == Family; (ofJob || r.Subtype == receipts.LettersPruned) && may(r.Run) {
			if len(out) == limit {
				return out, read, nil
			}
			p, err := r.Known()
			if err != nil {
				return nil, 0, err
			}
			e := Event{
				Position: r.Number, Subtype: r.Subtype, At: r.At, Actor: r.Actor, Payload: p, Run: r.Run, ID: label.ID, Type: label.Type, Queue: label.Queue,
				Attempt: p.Attempt, ByRule: strings.HasPrefix(r.Actor, "rule:"),
			}
			if policy, err := retrypolicy.Parse(label.Policy); err == nil {
				e.MaxAttempts = policy.Normalize().MaxRetryAttempts
			}
			if label.HandedBack > 0 && p.Attempt > 0 {
				if e.Attempt, err = backs.countedAttempt(ctx, r); err != nil {
					return nil, 0, err
				}
			}
			out = append(out, e)
		}
		read++
	}
	return out, read, nil
}

// handBacks has the receipts of attempts that were handed back, by case. It reads each case once.
type handBacks struct {
	Jobs
	of map[receipts.CaseID][]receipts.Receipt
}

func (h handBacks) read(ctx context.Context, id receipts.CaseID) ([]receipts.Receipt, error) {
	if found, read := h.of[id]; read {
		return found, nil
	}
	interrupted, err := h.s.journal.Receipts.OfCase(ctx, h.tenant, id, receipts.AttemptInterrupted)
	if err != nil {
		return nil, err
	}
	found := interrupted[:0]
	for _, r := range interrupted {
		p, err := r.Known()
		if err != nil {
			return nil, err
		}
		if p.HandedBack {
			found = append(found, r)
		}
	}
	h.of[id] = found
	return found, nil
}

// Outputs returns what workers returned with the success of runs, in the order of the runs, and of how many of
// them: it ends once it has read most bytes, with one output at least. A run whose worker returned nothing has
// none.
func (j Jobs) Outputs(ctx context.Context, runs []background.RunID, most int) (outputs map[background.RunID][]byte, read int, err error) {
	if len(runs) == 0 {
		return nil, 0, nil
	}
	return j.s.journal.Cases.Outputs(ctx, j.tenant, runs, most)
}

// countedAttempt returns the number of an attempt without those before it that were handed back.
func (h handBacks) countedAttempt(ctx context.Context, r numbered) (int, error) {
	p, err := r.Known()
	if err != nil {
		return 0, err
	}
	before, err := h.read(ctx, r.Case)
	if err != nil {
		return 0, err
	}
	n := p.Attempt
	for _, one := range before {
		if one.Run == r.Run && one.Seq < r.Seq {
			n--
		}
	}
	return n, nil
}
