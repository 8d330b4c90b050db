package trail

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/receipts"
)

// Annotations are the hold, the marks and the announced end of retention of a dead letter. The
// zero value is that of a dead letter without any.
type Annotations struct {
	Held            bool
	HoldReason      string
	Reprocess       *bool // reprocess_eligible; nil if not marked
	Review          *bool // manual_review_required; nil if not marked
	MarkReason      string
	RetentionEndsAt time.Time // zero: not announced
}

const (
	annotationsSQL       = `SELECT k.run_id, k.held, k.hold_reason, k.reprocess_eligible, k.manual_review_required, k.mark_reason, k.ends_at FROM recourse.annotations k `
	annotationsOfRunsSQL = annotationsSQL + `WHERE k.run_id = ANY($1::uuid[]) AND k.tenant = $2`
	annotationsOfCaseSQL = annotationsSQL + `JOIN recourse.runs r ON r.id = k.run_id WHERE r.tenant = $1 AND r.case_id = $2`
)

func selectAnnotations(ctx context.Context, q stored.Querier, query string, args ...any) (map[receipts.RunID]Annotations, error) {
	out := map[receipts.RunID]Annotations{}
	err := eachRow(ctx, q, func(rows *sql.Rows) error {
		var run uuid.UUID
		var a Annotations
		var ends sql.NullTime
		if err := rows.Scan(&run, &a.Held, &a.HoldReason, &a.Reprocess, &a.Review, &a.MarkReason, &ends); err != nil {
			return err
		}
		if ends.Valid {
			a.RetentionEndsAt = ends.Time.UTC()
		}
		out[receipts.RunID(run)] = a
		return nil
	}, query, args...)
	return out, err
}

// Annotations reads the annotations of runs of a tenant. Runs without any are left out.
func (r *Reader) Annotations(ctx context.Context, tenant string, runs []receipts.RunID) (map[receipts.RunID]Annotations, error) {
	ids := make(pq.StringArray, len(runs))
	for i, id := range runs {
		ids[i] = id.String()
	}
	out, err := selectAnnotations(ctx, r.db, annotationsOfRunsSQL, ids, tenant)
	return out, failed(err)
}

// CaseAnnotations reads the receipts of a case and the annotations of its runs, at one moment.
func (r *Reader) CaseAnnotations(ctx context.Context, tenant string, id receipts.CaseID) (rs []receipts.Receipt, annotations map[receipts.RunID]Annotations, err error) {
	err = r.atOneMoment(ctx, func(tx *sql.Tx) (err error) {
		if rs, err = stored.CaseTrail(ctx, tx, tenant, id); err != nil {
			return err
		}
		annotations, err = selectAnnotations(ctx, tx, annotationsOfCaseSQL, tenant, id.String())
		return err
	})
	return rs, annotations, err
}
