package postadjudication

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// deskAuditAtOnce is how many letters' desks are compared together.
const deskAuditAtOnce = 500

// deskAudit compares the desks of a tenant's letters with what their receipts say, some
// at a time.
type deskAudit struct {
	service *Service
	tenant  string
	told    map[background.RunID]postgres.Desk
	cases   map[background.RunID]receipts.CaseID
}

func (s *Service) newDeskAudit(tenant string) *deskAudit {
	return &deskAudit{s, tenant, map[background.RunID]postgres.Desk{}, map[background.RunID]receipts.CaseID{}}
}

// note takes in the receipts of a case.
func (d *deskAudit) note(ctx context.Context, a *Audit, rs []receipts.Receipt) error {
	told, err := foldDesks(rs)
	if err != nil {
		return err
	}
	for run, desk := range told {
		d.told[run], d.cases[run] = desk, rs[0].Case
	}
	if len(d.told) < deskAuditAtOnce {
		return nil
	}
	return d.compare(ctx, a)
}

// end compares the rest, and looks for desks of which no receipt tells.
func (d *deskAudit) end(ctx context.Context, a *Audit) error {
	if err := d.compare(ctx, a); err != nil {
		return err
	}
	return d.service.journal.EachUntoldDesk(ctx, d.tenant, a.found(InvariantFold, d.tenant))
}

// compare compares what was noted. A desk that seems wrong is read again with its
// receipts at one moment first.
func (d *deskAudit) compare(ctx context.Context, a *Audit) error {
	ids := make([]background.RunID, 0, len(d.told))
	for run := range d.told {
		ids = append(ids, run)
	}
	stored, err := d.service.journal.Desks(ctx, d.tenant, ids)
	if err != nil {
		return err
	}
	for run, told := range d.told {
		if sameDesk(stored[run], told) {
			continue
		}
		trail, now, err := d.service.journal.DesksAtOnce(ctx, d.tenant, d.cases[run])
		if err != nil {
			return err
		}
		then, err := foldDesks(trail)
		if err != nil {
			return err
		}
		if !sameDesk(now[run], then[run]) {
			a.differ(InvariantFold, site{tenant: d.tenant, kase: d.cases[run], run: run}, deskWords(now[run]), deskWords(then[run]), "letter %s of %s: stored %s, the receipts say %s", run, d.tenant, deskWords(now[run]), deskWords(then[run]))
		}
	}
	clear(d.told)
	clear(d.cases)
	return nil
}

// foldDesks derives the desks of a case's letters from nothing but its receipts.
func foldDesks(rs []receipts.Receipt) (map[background.RunID]postgres.Desk, error) {
	var out map[background.RunID]postgres.Desk
	for _, r := range rs {
		if !slices.Contains(postgres.DeskReceipts, r.Subtype) {
			continue
		}
		p, err := r.Payload()
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[background.RunID]postgres.Desk{}
		}
		d := out[r.Run]
		switch r.Subtype {
		case receipts.HoldPlaced:
			d.Held, d.HoldReason = true, p.Reason
		case receipts.HoldReleased:
			d.Held, d.HoldReason, d.EndsAt = false, "", time.Time{}
		case receipts.Marked:
			if d.MarkReason = p.Reason; !foldMarks(&d, p.Changes) {
				return nil, fmt.Errorf("receipt %s: %q are no marks", r.ID(), p.Changes)
			}
		case receipts.RetentionEnding:
			d.EndsAt = p.ExpiresAt
		case receipts.Purged, receipts.RetentionExpired:
			d = postgres.Desk{}
		}
		out[r.Run] = d
	}
	return out, nil
}

// foldMarks reads what MarkRequest.mark tells of the marks that were set.
func foldMarks(d *postgres.Desk, changes string) bool {
	for _, change := range strings.Fields(changes) {
		name, value, _ := strings.Cut(change, "=")
		said, err := strconv.ParseBool(value)
		switch {
		case err != nil:
			return false
		case name == "reprocess_eligible":
			d.Reprocess = &said
		case name == "manual_review_required":
			d.Review = &said
		default:
			return false
		}
	}
	return true
}

// sameDesk compares a desk with what receipts tell. That no end is stored is no fault:
// older programs announced without keeping it, and it is announced again.
func sameDesk(stored, told postgres.Desk) bool {
	same := func(a, b *bool) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return stored.Held == told.Held && stored.HoldReason == told.HoldReason && same(stored.Reprocess, told.Reprocess) && same(stored.Review, told.Review) &&
		stored.MarkReason == told.MarkReason && (stored.EndsAt.IsZero() || stored.EndsAt.Equal(told.EndsAt))
}

// deskWords tells a desk without what people wrote.
func deskWords(d postgres.Desk) string {
	mark := func(b *bool) string {
		if b == nil {
			return "unsaid"
		}
		return strconv.FormatBool(*b)
	}
	ends := "not announced"
	if !d.EndsAt.IsZero() {
		ends = d.EndsAt.Format("2006-01-02T15:04:05Z07:00")
	}
	return fmt.Sprintf("held %t, reprocess_eligible %s, manual_review_required %s, end %s", d.Held, mark(d.Reprocess), mark(d.Review), ends)
}
