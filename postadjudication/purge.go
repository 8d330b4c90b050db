package postadjudication

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Purges purges dead letters before their retention ends.
type Purges struct {
	s             *keeper
	tenant, actor string
}

// PurgeRequest asks to purge open letters. Cases, reservations and receipts always
// stay.
type PurgeRequest struct {
	Reason string            // required
	Filter deadletter.Filter // must not be empty
	// Confirm must be the number of letters that PlanPurge counts, in digits. If the number
	// has changed since, nothing is purged.
	Confirm string
}

// ClearRequest asks to purge all open letters of a family.
type ClearRequest struct {
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

// PlanPurge counts what Purge would do. It needs no actor, and ignores Reason and Confirm.
func (p Purges) PlanPurge(ctx context.Context, q PurgeRequest) (PurgePlan, error) {
	list, err := p.s.pagesToPurge(p.tenant, q.Filter)
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
func (p Purges) Purge(ctx context.Context, q PurgeRequest) (Purged, error) {
	return p.purge(ctx, q, func(counted PurgePlan) error {
		if q.Confirm == strconv.Itoa(counted.Letters) {
			return nil
		}
		return &refusal.FieldError{Field: "confirm", Problem: fmt.Sprintf("must be the number of letters that would be purged, which is %d now", counted.Letters)}
	})
}

// PlanClear counts what Clear would do.
func (p Purges) PlanClear(ctx context.Context, q ClearRequest) (PurgePlan, error) {
	if err := p.s.checkFamily(q.Family); err != nil {
		return PurgePlan{}, err
	}
	return p.PlanPurge(ctx, PurgeRequest{Filter: deadletter.Filter{Family: q.Family}})
}

// Clear purges all open letters of a family that died before the call. It works and fails as
// Purge does.
func (p Purges) Clear(ctx context.Context, q ClearRequest) (Purged, error) {
	err := p.s.checkFamily(q.Family)
	if err == nil && q.Confirm != q.Family {
		err = &refusal.FieldError{Field: "confirm", Problem: "must be the name of the family whose letters are all to be purged"}
	}
	if err != nil {
		return Purged{}, err
	}
	return p.purge(ctx, PurgeRequest{Reason: q.Reason, Filter: deadletter.Filter{Family: q.Family}}, func(PurgePlan) error { return nil })
}

func (k *keeper) checkFamily(family string) error {
	if _, known := k.rules.families[family]; !known {
		return &refusal.FieldError{Field: "family", Problem: "must be the name of a family"}
	}
	return nil
}

// purge purges letters if what they count to is confirmed, or plans the purge where that takes
// two people.
func (p Purges) purge(ctx context.Context, q PurgeRequest, confirm func(PurgePlan) error) (Purged, error) {
	list, err := p.s.pagesToPurge(p.tenant, q.Filter)
	if err = errors.Join(validate.Actor(p.actor, q.Reason), err); err != nil {
		return Purged{}, err
	}
	plan, settlements, err := countPurge(ctx, list)
	if err == nil {
		err = confirm(plan)
	}
	if err != nil {
		return Purged{}, err
	}
	people, err := p.s.cases.RequiredPeople(ctx, p.tenant)
	if err != nil {
		return Purged{}, err
	}
	needsTwo := people > 1 || access.IsProgram(p.actor)
	if needsTwo && settlements > 0 {
		return Purged{}, p.s.propose(ctx, p.tenant, p.actor, q.Filter, q.Reason)
	}
	return p.s.purgePages(ctx, list, p.actor, validate.Clean(q.Reason, 1024), needsTwo)
}

// pageSource returns an iterator over the letters to purge, from the first page.
type pageSource func() *purgeScan

// countPurge counts the letters to purge, and how many of them are of settlements.
func countPurge(ctx context.Context, list pageSource) (plan PurgePlan, settlements int, err error) {
	plan = PurgePlan{Money: map[string]int64{}}
	for scan := list(); ; {
		letters, more, err := scan.readPage(ctx)
		if err != nil {
			return plan, settlements, err
		}
		for _, f := range letters {
			switch casework.PurgeGate(f) {
			case "":
				plan.Letters++
				if f.Case.Kind == journal.KindSettlement {
					settlements++
				}
				if f.Case.Currency != "" {
					plan.Money[f.Case.Currency] += f.Case.State.Reserved
				}
			case refusal.GateHeld:
				plan.Held++
			case refusal.GateReconcileFirst:
				plan.Unknown++
			}
		}
		if !more {
			return plan, settlements, nil
		}
	}
}

// purgePages purges letters. With plain it skips those of settlements, which died after the
// letters were counted.
func (k *keeper) purgePages(ctx context.Context, list pageSource, actor, reason string, plain bool) (Purged, error) {
	var out Purged
	for scan := list(); ; {
		letters, more, err := scan.readPage(ctx)
		if err != nil {
			return out, err
		}
		var due []journal.LetterRow
		for _, f := range letters {
			switch gate := casework.PurgeGate(f); {
			case gate == refusal.GateHeld:
				out.Held++
			case gate == refusal.GateReconcileFirst:
				out.Unknown++
			case gate != "", plain && f.Case.Kind == journal.KindSettlement:
				out.ChangedMeanwhile++
			default:
				due = append(due, f)
			}
		}
		done, err := k.purgeBatch(ctx, scan, due, actor, reason)
		out.Letters += done
		if err != nil {
			return out, err
		}
		if out.ChangedMeanwhile += len(due) - done; !more {
			return out, nil
		}
	}
}

// purgeFailures decides when a purge ends: after tenantFailureLimit failures in a row, and at the
// first archive that does not answer, which takes archiveWriteTimeout.
type purgeFailures struct {
	inRow int
	err   error // that ended the purge
}

// tried counts a try, see many.tried.
func (f *purgeFailures) tried(_ int, err error) bool {
	if err == nil {
		f.inRow = 0
		return true
	}
	if f.inRow++; f.inRow < tenantFailureLimit && !errors.Is(err, errArchiveTimeout) {
		return true
	}
	f.err = err
	return false
}

// purgeBatch purges the letters of a page that are still selected. It retries once those that were
// locked or changed since they were read.
func (k *keeper) purgeBatch(ctx context.Context, scan *purgeScan, due []journal.LetterRow, actor, reason string) (taken int, err error) {
	at := k.now()
	decide := casework.Purging(func(f journal.LetterRow) receipts.Draft {
		p := receipts.Payload{Reason: reason, DeadLetteredAt: f.Run.DeadAt}
		if f.Case.Kind == journal.KindSettlement {
			p.People = 1 // with two people there is a plan
		}
		return receipts.Draft{Run: f.Run.ID, Subtype: receipts.Purged, Actor: actor, At: at, Payload: p}
	})
	for try := 0; try < 2 && len(due) > 0; try++ {
		if due, err = scan.stillSelected(ctx, due); err != nil {
			return taken, err
		}
		var failures purgeFailures
		results, err := k.cases.ApplyMany(ctx, due, decide, k.cases.Archiving(at, casework.Batch{Tried: failures.tried}))
		taken += countWritten(results)
		var changed []background.RunID
		for _, r := range results {
			switch {
			case errors.Is(r.Err, casework.ErrLetterChanged):
				changed = append(changed, r.Letter.Run.ID)
			case err == nil && r.Err != nil && !r.Decided:
				err = cmp.Or(ctx.Err(), failures.err, r.Err)
			}
		}
		if err != nil || len(changed) == 0 {
			return taken, err
		}
		if due, err = k.journal.Letters.ByID(ctx, changed...); err != nil {
			return taken, err
		}
	}
	return taken, nil
}

// pagesToPurge returns the open letters that match a filter, without letters that die after the
// call.
func (k *keeper) pagesToPurge(tenant string, f deadletter.Filter) (pageSource, error) {
	if f.Status != background.NoLetter && f.Status != background.LetterOpen {
		return nil, &refusal.FieldError{Field: "letter", Problem: "must be open: only open letters can be purged"}
	}
	if f.Status = background.NoLetter; f == (deadletter.Filter{}) {
		return nil, &refusal.FieldError{Field: "filter", Problem: "must not be empty; to purge all letters of a family, clear it"}
	}
	if err := deadletter.CheckQuery(tenant, f); err != nil {
		return nil, err
	}
	f.Status = background.LetterOpen
	now := k.now()
	if died := now.Add(time.Microsecond); f.To.IsZero() || died.Before(f.To) {
		f.To = died
	}
	return func() *purgeScan {
		return &purgeScan{journal: k.journal, index: k.index.Search, tenant: tenant, filter: k.index.JournalFilter(f, now)}
	}, nil
}

// purgeScan iterates over the letters that match a filter, oldest first.
type purgeScan struct {
	journal     *journal.Journal
	index       *search.Index
	tenant      string
	filter      search.Filter
	first, last search.Position // of the page that was read last; letters of it are after first
}

// readPage reads the next page, each letter as it is now. more reports whether others may follow.
func (w *purgeScan) readPage(ctx context.Context) (letters []journal.LetterRow, more bool, err error) {
	if w.last == (search.Position{}) {
		if err := w.index.CatchUp(ctx); err != nil {
			return nil, false, err
		}
	}
	found, more, last, err := w.index.Search(ctx, w.tenant, w.filter, deadletter.Orders[deadletter.OldestFirst], w.last, pruneBatch)
	if err != nil {
		return nil, false, err
	}
	w.first, w.last = w.last, last
	ids := make([]background.RunID, len(found))
	for i, l := range found {
		ids[i] = l.Run.ID
	}
	letters, err = w.journal.Letters.ByID(ctx, ids...)
	return letters, more, err
}

// stillSelected returns those of some letters of the last page that the filter still matches. It
// updates the index after the letters were read, so that a letter that has not changed since is
// matched in the state in which it was read. The caller's write is guarded by that state.
func (w *purgeScan) stillSelected(ctx context.Context, letters []journal.LetterRow) ([]journal.LetterRow, error) {
	if err := w.index.CatchUp(ctx); err != nil {
		return nil, err
	}
	selected := map[background.RunID]bool{}
	for after, more, inPage := w.first, true, true; more && inPage; {
		var found []search.Letter
		var err error
		if found, more, after, err = w.index.Search(ctx, w.tenant, w.filter, deadletter.Orders[deadletter.OldestFirst], after, pruneBatch); err != nil {
			return nil, err
		}
		for _, l := range found {
			selected[l.Run.ID] = true
		}
		inPage = after.Value < w.last.Value || after.Value == w.last.Value && bytes.Compare(after.Run[:], w.last.Run[:]) < 0
	}
	return slices.DeleteFunc(slices.Clone(letters), func(f journal.LetterRow) bool { return !selected[f.Run.ID] }), nil
}
