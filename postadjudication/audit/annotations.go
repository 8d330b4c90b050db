package audit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/receipts"
)

// annotationAuditBatch is the number of letters whose annotations are compared at once.
const annotationAuditBatch = 500

// annotationAudit compares the annotations of a tenant's letters with their receipts, in
// batches.
type annotationAudit struct {
	*auditor
	tenant   string
	recorded map[receipts.RunID]Annotations
	cases    map[receipts.RunID]receipts.CaseID
}

func (s *auditor) newAnnotationAudit(tenant string) *annotationAudit {
	return &annotationAudit{s, tenant, map[receipts.RunID]Annotations{}, map[receipts.RunID]receipts.CaseID{}}
}

// add adds the receipts of a case.
func (d *annotationAudit) add(ctx context.Context, a *Report, rs []receipts.Receipt) error {
	for run, annotations := range a.foldAnnotations(d.tenant, rs) {
		d.recorded[run], d.cases[run] = annotations, rs[0].Case
	}
	if len(d.recorded) < annotationAuditBatch {
		return nil
	}
	return d.compare(ctx, a)
}

// compare compares the current batch. Annotations that seem wrong are read again with their
// receipts in one transaction first.
func (d *annotationAudit) compare(ctx context.Context, a *Report) error {
	ids := make([]receipts.RunID, 0, len(d.recorded))
	for run := range d.recorded {
		ids = append(ids, run)
	}
	rows, err := d.rows.Annotations(ctx, d.tenant, ids)
	if err != nil {
		return err
	}
	for run, recorded := range d.recorded {
		if len(compareAnnotations(rows[run], recorded)) == 0 {
			continue
		}
		rs, now, err := d.rows.CaseAnnotations(ctx, d.tenant, d.cases[run])
		if err != nil {
			return err
		}
		then := a.foldAnnotations(d.tenant, rs)
		compareAnnotations(now[run], then[run]).fail(a, breakSubject{tenant: d.tenant, caseID: d.cases[run], run: run}, fmt.Sprintf("letter %s of %s", run, d.tenant))
	}
	clear(d.recorded)
	clear(d.cases)
	return nil
}

// foldAnnotations derives the annotations of a case's letters from its receipts alone. It reports
// the receipts that can't be read, each once.
func (a *Report) foldAnnotations(tenant string, rs []receipts.Receipt) map[receipts.RunID]Annotations {
	var out map[receipts.RunID]Annotations
	for _, r := range rs {
		if !slices.Contains(stored.AnnotationReceipts, r.Subtype) {
			continue
		}
		p, err := r.Payload()
		if err != nil {
			a.failUnreadable(tenant, r, err)
			continue
		}
		if out == nil {
			out = map[receipts.RunID]Annotations{}
		}
		d := out[r.Run]
		switch r.Subtype {
		case receipts.HoldPlaced:
			d.Held, d.HoldReason = true, p.Reason
		case receipts.HoldReleased:
			d.Held, d.HoldReason, d.RetentionEndsAt = false, "", time.Time{}
		case receipts.Marked:
			if d.MarkReason = p.Reason; !foldMarks(&d, p.Changes) {
				a.failUnreadable(tenant, r, fmt.Errorf("%q are no marks", p.Changes))
			}
		case receipts.RetentionEnding:
			d.RetentionEndsAt = p.ExpiresAt
		case receipts.Purged, receipts.RetentionExpired:
			d = Annotations{}
		}
		out[r.Run] = d
	}
	return out
}

// foldMarks parses the changes that a mark writes.
func foldMarks(d *Annotations, changes string) bool {
	for _, change := range strings.Fields(changes) {
		name, value, _ := strings.Cut(change, "=")
		mark, err := strconv.ParseBool(value)
		switch {
		case err != nil:
			return false
		case name == "reprocess_eligible":
			d.Reprocess = &mark
		case name == "manual_review_required":
			d.Review = &mark
		default:
			return false
		}
	}
	return true
}

// compareAnnotations compares stored annotations with receipts.
func compareAnnotations(row, recorded Annotations) (d differences) {
	mark := func(b *bool) string {
		if b == nil {
			return ""
		}
		return strconv.FormatBool(*b)
	}
	d.compare("held", row.Held, recorded.Held)
	d.compare("reason of the hold", row.HoldReason, recorded.HoldReason)
	d.compare("mark reprocess_eligible", mark(row.Reprocess), mark(recorded.Reprocess))
	d.compare("mark manual_review_required", mark(row.Review), mark(recorded.Review))
	d.compare("reason of the mark", row.MarkReason, recorded.MarkReason)
	d.compareTimes("announced end", row.RetentionEndsAt, recorded.RetentionEndsAt)
	return d
}
