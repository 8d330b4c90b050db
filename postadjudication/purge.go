package postadjudication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// PurgeRequest asks to purge open letters. Cases, reservations and receipts always
// stay.
type PurgeRequest struct {
	Actor  string       // required
	Reason string       // required
	Filter LetterFilter // must not be empty
	// Confirm must be the number of letters that PlanPurge counts, in digits. If the number
	// has changed since, nothing is purged.
	Confirm string
}

// ClearRequest asks to purge all open letters of a family.
type ClearRequest struct {
	Actor   string // required
	Reason  string // required
	Family  string // required
	Confirm string // must be the name of the family
}

// PurgePlan counts what a purge would do now.
type PurgePlan struct {
	Letters int              `json:"letters"` // to be purged
	Money   map[string]int64 `json:"money"`   // reserved for them: currency -> minor units
	Held    int              `json:"held"`    // skipped
	Unknown int              `json:"unknown"` // skipped: their outcome is unknown
}

// Purged counts what a purge did.
type Purged struct {
	Letters          int `json:"letters"`
	Held             int `json:"held"`     // skipped
	Unknown          int `json:"unknown"`  // skipped
	ChangedMeanwhile int `json:"moved_on"` // skipped: forked, reconciled, held, or no longer matched by the filter during the purge
}

// PlanPurge counts what Purge would do. It ignores Actor, Reason and Confirm.
func (s *Service) PlanPurge(ctx context.Context, tenant string, q PurgeRequest) (PurgePlan, error) {
	list, err := s.pagesToPurge(tenant, q)
	if err != nil {
		return PurgePlan{}, err
	}
	plan, _, err := countPurge(ctx, list)
	return plan, err
}

// Purge purges the open letters that match a filter, in batches: it archives each if there is
// an archive, then writes its receipt and closes it, then removes its archived task. It never
// purges held letters, letters with an unknown outcome and live runs. A letter that changes
// meanwhile is purged only if it then still matches the filter. If Purge stops early because
// ctx ends or the database fails, the batches done are committed; a repeated call with a new
// Confirm does the rest.
//
// Errors: a *FieldError for bad input. Letters of settlements take two people, unless the tenant
// requires only one: then nothing is purged, all letters are planned, and the error is a
// *SecondPersonError with the plan, which another person must start.
func (s *Service) Purge(ctx context.Context, tenant string, q PurgeRequest) (Purged, error) {
	list, err := s.pagesToPurge(tenant, q)
	if err = errors.Join(requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024), err); err != nil {
		return Purged{}, err
	}
	plan, settlements, err := countPurge(ctx, list)
	if err != nil {
		return Purged{}, err
	}
	if q.Confirm != strconv.Itoa(plan.Letters) {
		return Purged{}, &FieldError{Field: "confirm", Problem: fmt.Sprintf("must be the number of letters that would be purged, which is %d now", plan.Letters)}
	}
	return s.purgeOrPlan(ctx, tenant, list, settlements, q.Filter, q.Actor, q.Reason)
}

// purgeOrPlan purges letters, or plans the purge where that takes two people.
func (s *Service) purgeOrPlan(ctx context.Context, tenant string, list pageSource, settlements int, f LetterFilter, actor, reason string) (Purged, error) {
	people, err := s.requiredPeople(ctx, tenant)
	if err != nil {
		return Purged{}, err
	}
	needsTwo := people > 1 || access.IsProgram(actor)
	if needsTwo && settlements > 0 {
		plan, err := s.PlanBulk(ctx, BulkRequest{Tenant: tenant, Filter: f, Action: BulkPurge, Actor: actor, Reason: reason})
		if err == nil {
			err = &SecondPersonError{Plan: plan}
		}
		return Purged{}, err
	}
	return s.purgePages(ctx, list, actor, reason, needsTwo)
}

// PlanClear counts what Clear would do.
func (s *Service) PlanClear(ctx context.Context, tenant string, q ClearRequest) (PurgePlan, error) {
	list, err := s.pagesToClear(tenant, q)
	if err != nil {
		return PurgePlan{}, err
	}
	plan, _, err := countPurge(ctx, list)
	return plan, err
}

// Clear purges all open letters of a family that died before the call. It works and fails as
// Purge does.
func (s *Service) Clear(ctx context.Context, tenant string, q ClearRequest) (Purged, error) {
	list, err := s.pagesToClear(tenant, q)
	if err == nil && q.Confirm != q.Family {
		err = &FieldError{Field: "confirm", Problem: "must be the name of the family whose letters are all to be purged"}
	}
	if err = errors.Join(requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024), err); err != nil {
		return Purged{}, err
	}
	_, settlements, err := countPurge(ctx, list)
	if err != nil {
		return Purged{}, err
	}
	return s.purgeOrPlan(ctx, tenant, list, settlements, LetterFilter{Family: q.Family}, q.Actor, q.Reason)
}

// pageSource returns a function that reads letters page by page, from the first page.
type pageSource func(ctx context.Context) (next func() (purgePage, error))

// purgePage is one page of letters to purge.
type purgePage struct {
	letters []postgres.LetterRow // each as it was when read
	more    bool                 // others may follow
	// recheck returns those of some letters of the page that are still to be purged in the
	// state in which they were read. The caller's write is guarded by that state.
	recheck func(context.Context, []postgres.LetterRow) ([]postgres.LetterRow, error)
}

func keepAll(_ context.Context, letters []postgres.LetterRow) ([]postgres.LetterRow, error) {
	return letters, nil
}

// pagesToClear returns the open letters of a family.
func (s *Service) pagesToClear(tenant string, q ClearRequest) (pageSource, error) {
	_, known := s.retention.families[q.Family]
	switch {
	case tenant == "":
		return nil, &FieldError{Field: "tenant", Problem: "must be given"}
	case !known:
		return nil, &FieldError{Field: "family", Problem: "must be the name of a family"}
	}
	died := s.now()
	return func(ctx context.Context) func() (purgePage, error) {
		var after postgres.LetterRowPosition
		return func() (purgePage, error) {
			page, last, err := s.journal.Letters.OfFamily(ctx, tenant, q.Family, died, after, pruneBatch)
			more := last != after
			after = last
			return purgePage{page, more, keepAll}, err
		}
	}, nil
}

// countPurge counts the letters to purge, and how many of them are of settlements.
func countPurge(ctx context.Context, list pageSource) (plan PurgePlan, settlements int, err error) {
	plan = PurgePlan{Money: map[string]int64{}}
	for next := list(ctx); ; {
		page, err := next()
		if err != nil {
			return plan, settlements, err
		}
		for _, f := range page.letters {
			switch purgeGate(f) {
			case "":
				plan.Letters++
				if f.Case.Kind == postgres.KindSettlement {
					settlements++
				}
				if f.Case.Currency != "" {
					plan.Money[f.Case.Currency] += f.Case.State.Reserved
				}
			case GateHeld:
				plan.Held++
			case GateReconcileFirst:
				plan.Unknown++
			}
		}
		if !page.more {
			return plan, settlements, nil
		}
	}
}

// purgePages purges letters. With plain it skips those of settlements, which died after the
// letters were counted.
func (s *Service) purgePages(ctx context.Context, list pageSource, actor, reason string, plain bool) (Purged, error) {
	var out Purged
	reason = cleanText(reason, 1024)
	for next := list(ctx); ; {
		page, err := next()
		if err != nil {
			return out, err
		}
		var due []postgres.LetterRow
		for _, f := range page.letters {
			switch gate := purgeGate(f); {
			case gate == GateHeld:
				out.Held++
			case gate == GateReconcileFirst:
				out.Unknown++
			case gate != "", plain && f.Case.Kind == postgres.KindSettlement:
				out.ChangedMeanwhile++
			default:
				due = append(due, f)
			}
		}
		done, err := s.purgeBatch(ctx, due, page.recheck, actor, reason)
		out.Letters += done
		if err != nil {
			return out, err
		}
		if out.ChangedMeanwhile += len(due) - done; !page.more {
			return out, nil
		}
	}
}

// purgeBatch purges the letters that pass recheck. It retries once those that were locked or
// changed since they were read.
func (s *Service) purgeBatch(ctx context.Context, due []postgres.LetterRow, recheck func(context.Context, []postgres.LetterRow) ([]postgres.LetterRow, error), actor, reason string) (taken int, err error) {
	at := s.now()
	decide := purging(func(f postgres.LetterRow) receipts.Draft {
		p := receipts.Payload{Reason: reason, DeadLetteredAt: f.Run.DeadAt}
		if f.Case.Kind == postgres.KindSettlement {
			p.People = 1 // with two people there is a plan
		}
		return receipts.Draft{Run: f.Run.ID, Subtype: receipts.Purged, Actor: actor, At: at, Payload: p}
	})
	for try := 0; try < 2 && len(due) > 0; try++ {
		if due, err = recheck(ctx, due); err != nil {
			return taken, err
		}
		results, err := s.cases.applyMany(ctx, due, decide, s.cases.archiving(at, many{}))
		taken += countWritten(results)
		var changed []background.RunID
		for _, r := range results {
			switch {
			case errors.Is(r.err, errLetterChanged):
				changed = append(changed, r.letter.Run.ID)
			case err == nil && !r.decided:
				err = r.err
			}
		}
		if err != nil || len(changed) == 0 {
			return taken, err
		}
		if due, err = s.journal.Letters.ByID(ctx, changed...); err != nil {
			return taken, err
		}
	}
	return taken, nil
}

// pagesToPurge returns the open letters that match a request's filter, without letters that die
// after the call.
func (s *Service) pagesToPurge(tenant string, q PurgeRequest) (pageSource, error) {
	f := q.Filter
	if f.Status != background.NoLetter && f.Status != background.LetterOpen {
		return nil, &FieldError{Field: "letter", Problem: "must be open: only open letters can be purged"}
	}
	if f.Status = background.NoLetter; f == (LetterFilter{}) {
		return nil, &FieldError{Field: "filter", Problem: "must not be empty; to purge all letters of a family, clear it"}
	}
	if err := validateLetterQuery(tenant, f); err != nil {
		return nil, err
	}
	f.Status = background.LetterOpen
	now := s.now()
	if died := now.Add(time.Microsecond); f.To.IsZero() || died.Before(f.To) {
		f.To = died
	}
	return func(ctx context.Context) func() (purgePage, error) {
		scan := purgeScan{service: s, tenant: tenant, filter: s.journalFilter(f, now)}
		return func() (purgePage, error) { return scan.readPage(ctx) }
	}, nil
}

// purgeScan iterates over the letters that match a filter, oldest first.
type purgeScan struct {
	service *Service
	tenant  string
	filter  postgres.LetterFilter
	after   postgres.LetterPosition
}

// readPage reads the next page.
func (w *purgeScan) readPage(ctx context.Context) (purgePage, error) {
	if w.after == (postgres.LetterPosition{}) {
		if err := w.service.journal.Index.CatchUp(ctx); err != nil {
			return purgePage{}, err
		}
	}
	found, more, last, err := w.service.journal.Index.Search(ctx, w.tenant, w.filter, letterOrders[OldestFirst], w.after, pruneBatch)
	if err != nil {
		return purgePage{}, err
	}
	first := w.after
	w.after = last
	ids := make([]background.RunID, len(found))
	for i, l := range found {
		ids[i] = l.Run.ID
	}
	rows, err := w.service.journal.Letters.ByID(ctx, ids...)
	return purgePage{rows, more, func(ctx context.Context, letters []postgres.LetterRow) ([]postgres.LetterRow, error) {
		return w.stillSelected(ctx, first, last, letters)
	}}, err
}

// stillSelected returns those of some letters between two positions that the filter still
// matches. It updates the index after the letters were read, so that a letter that has not
// changed since is matched in the state in which it was read.
func (w *purgeScan) stillSelected(ctx context.Context, first, last postgres.LetterPosition, letters []postgres.LetterRow) ([]postgres.LetterRow, error) {
	if err := w.service.journal.Index.CatchUp(ctx); err != nil {
		return nil, err
	}
	selected := map[background.RunID]bool{}
	for after, more, inRange := first, true, true; more && inRange; {
		var found []postgres.FoundLetter
		var err error
		if found, more, after, err = w.service.journal.Index.Search(ctx, w.tenant, w.filter, letterOrders[OldestFirst], after, pruneBatch); err != nil {
			return nil, err
		}
		for _, l := range found {
			selected[l.Run.ID] = true
		}
		inRange = after.Value < last.Value || after.Value == last.Value && bytes.Compare(after.Run[:], last.Run[:]) < 0
	}
	return slices.DeleteFunc(slices.Clone(letters), func(f postgres.LetterRow) bool { return !selected[f.Run.ID] }), nil
}
