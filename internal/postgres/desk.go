package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// Annotations is what people have said of a letter, and what was said to them. The zero Desk
// is that of a letter that nobody has touched.
type Annotations struct {
	Held            bool
	HoldReason      string    // empty unless held
	Reprocess       *bool     // reprocess_eligible; nil when nobody has said
	Review          *bool     // manual_review_required; nil when nobody has said
	MarkReason      string    // of the last mark
	RetentionEndsAt time.Time // of its retention, as was announced; zero when nothing was
}

// LetterRow is a letter with its desk at one moment. Whatever changes a desk leaves a
// receipt, so that the case's head is the version of both.
type LetterRow struct {
	Snapshot
	Annotations Annotations
}

// letterRowsSQL reads letters with their desks, oldest death first; where selects them.
func letterRowsSQL(where string) string {
	return `SELECT q.*, coalesce(d.held, false) AS on_hold, coalesce(d.hold_reason, '') AS hold_reason, d.reprocess_eligible, d.manual_review_required,
  coalesce(d.mark_reason, '') AS mark_reason, d.ends_at
FROM (` + snapshotSQL + where + `) q LEFT JOIN recourse.desk d ON d.run_id = q.id ORDER BY q.dead_at, q.id`
}

var letterRowsByIDSQL = letterRowsSQL(`WHERE r.id = ANY($1::uuid[])`)

// LetterRowsByID reads runs of any tenant with their desks, by id. Runs that do not exist
// are left out.
func (j *Journal) LetterRowsByID(ctx context.Context, ids ...background.RunID) ([]LetterRow, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	c := newColumns(1, 1)
	for _, id := range ids {
		c.id(id)
	}
	found, _, err := j.selectLetterRows(ctx, LetterRowPosition{}, letterRowsByIDSQL, c.args()...)
	return found, err
}

// selectLetterRows reads letters after a place, and gives the place of the last. Those that this
// program can't read are passed over: they stay as they are, and Warn is told.
func (j *Journal) selectLetterRows(ctx context.Context, after LetterRowPosition, query string, args ...any) (out []LetterRow, last LetterRowPosition, err error) {
	rows, err := j.readDB.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, after, unavailable(err)
	}
	defer rows.Close()
	last = after
	for rows.Next() {
		var scanned snapshotRow
		var d Annotations
		var ends sql.NullTime
		s, err := scanned.read(rows, &d.Held, &d.HoldReason, &d.Reprocess, &d.Review, &d.MarkReason, &ends)
		if scanned.ID == (uuid.UUID{}) {
			return nil, after, unavailable(err)
		}
		if ends.Valid {
			d.RetentionEndsAt = ends.Time.UTC()
		}
		last = LetterRowPosition{scanned.DeadAt.Time.UTC(), background.RunID(scanned.ID)}
		if err != nil {
			j.warnUnreadable(unreadable{{id: background.RunID(scanned.ID), err: err}})
			continue
		}
		out = append(out, LetterRow{s, d})
	}
	if err := rows.Err(); err != nil {
		return nil, after, unavailable(err)
	}
	return out, last, nil
}

// AnnotationsRow is a desk that changes with its letter: what a Change carries beside it.
type AnnotationsRow struct {
	Run         background.RunID
	Tenant      string
	Annotations Annotations
}

const upsertAnnotationsSQL = `
INSERT INTO recourse.desk (run_id, tenant, held, hold_reason, reprocess_eligible, manual_review_required, mark_reason, warned, ends_at)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::bool[], $4::text[], $5::bool[], $6::bool[], $7::text[], $8::bool[], $9::timestamptz[])
ON CONFLICT (run_id) DO UPDATE SET held = excluded.held, hold_reason = excluded.hold_reason, reprocess_eligible = excluded.reprocess_eligible,
  manual_review_required = excluded.manual_review_required, mark_reason = excluded.mark_reason, warned = excluded.warned, ends_at = excluded.ends_at`

func (AnnotationsRow) failpointName() string { return failpoint.Annotations }

func (d AnnotationsRow) write(ctx context.Context, tx *sql.Tx) error {
	return upsertAnnotations(ctx, tx, []AnnotationsRow{d})
}

func upsertAnnotations(ctx context.Context, tx *sql.Tx, rows []AnnotationsRow) error {
	if len(rows) == 0 {
		return nil
	}
	c := newColumns(9, len(rows))
	for _, d := range rows {
		c.id(d.Run)
		c.str(d.Tenant)
		c.bool(d.Annotations.Held)
		c.str(d.Annotations.HoldReason)
		c.boolOrNull(d.Annotations.Reprocess)
		c.boolOrNull(d.Annotations.Review)
		c.str(d.Annotations.MarkReason)
		c.bool(!d.Annotations.RetentionEndsAt.IsZero())
		c.time(d.Annotations.RetentionEndsAt)
	}
	_, err := tx.ExecContext(ctx, upsertAnnotationsSQL, c.args()...)
	return err
}

func (c *columns) boolOrNull(v *bool) {
	if v == nil {
		c.null()
		return
	}
	c.bool(*v)
}

// Erasure is the desk of a letter that goes, and with it the payload of a task of a
// plain family. What a settlement asked the escrow service stays: a payment that is
// found later is read with it.
type Erasure struct{ Run background.RunID }

func (Erasure) failpointName() string { return failpoint.Annotations }

func (c Erasure) write(ctx context.Context, tx *sql.Tx) error {
	return eraseLetters(ctx, tx, []background.RunID{c.Run})
}

func eraseLetters(ctx context.Context, tx *sql.Tx, runs []background.RunID) error {
	if len(runs) == 0 {
		return nil
	}
	c := newColumns(1, len(runs))
	for _, id := range runs {
		c.id(id)
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM recourse.desk WHERE run_id = ANY($1::uuid[])`, c.args()...); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `SELECT set_config('recourse.erasing', 'purged', true)`); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE recourse.runs SET payload = NULL WHERE id = ANY($1::uuid[]) AND operation_key IS NULL AND letter = 'purged'`, c.args()...)
	return err
}
