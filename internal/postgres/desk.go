package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// Desk is what people have said of a letter, and what was said to them. The zero Desk
// is that of a letter that nobody has touched.
type Desk struct {
	Held       bool
	HoldReason string    // empty unless held
	Reprocess  *bool     // reprocess_eligible; nil when nobody has said
	Review     *bool     // manual_review_required; nil when nobody has said
	MarkReason string    // of the last mark
	EndsAt     time.Time // of its retention, as was announced; zero when nothing was
}

// Filed is a letter with its desk at one moment. Whatever changes a desk leaves a
// receipt, so that the case's head is the version of both.
type Filed struct {
	Snapshot
	Desk Desk
}

// filedSQL reads letters with their desks, oldest death first; where selects them.
func filedSQL(where string) string {
	return `SELECT q.*, coalesce(d.held, false) AS on_hold, coalesce(d.hold_reason, '') AS hold_reason, d.reprocess_eligible, d.manual_review_required,
  coalesce(d.mark_reason, '') AS mark_reason, d.ends_at
FROM (` + snapshotSQL + where + `) q LEFT JOIN recourse.desk d ON d.run_id = q.id ORDER BY q.dead_at, q.id`
}

var byFiledSQL = filedSQL(`WHERE r.id = ANY($1::uuid[])`)

// Filed reads runs of any tenant with their desks, by id. Runs that do not exist
// are left out.
func (j *Journal) Filed(ctx context.Context, ids ...background.RunID) ([]Filed, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	c := newColumns(1, 1)
	for _, id := range ids {
		c.id(id)
	}
	found, _, err := j.filed(ctx, FiledPlace{}, byFiledSQL, c.args()...)
	return found, err
}

// filed reads letters after a place, and gives the place of the last. Those that this
// program can't read are passed over: they stay as they are, and Warn is told.
func (j *Journal) filed(ctx context.Context, after FiledPlace, query string, args ...any) (out []Filed, last FiledPlace, err error) {
	rows, err := j.reads.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, after, unavailable(err)
	}
	defer rows.Close()
	last = after
	for rows.Next() {
		var line row
		var d Desk
		var ends sql.NullTime
		s, err := line.read(rows, &d.Held, &d.HoldReason, &d.Reprocess, &d.Review, &d.MarkReason, &ends)
		if line.ID == (uuid.UUID{}) {
			return nil, after, unavailable(err)
		}
		if ends.Valid {
			d.EndsAt = ends.Time.UTC()
		}
		last = FiledPlace{line.DeadAt.Time.UTC(), background.RunID(line.ID)}
		if err != nil {
			j.passOver(unreadable{{id: background.RunID(line.ID), err: err}})
			continue
		}
		out = append(out, Filed{s, d})
	}
	if err := rows.Err(); err != nil {
		return nil, after, unavailable(err)
	}
	return out, last, nil
}

// DeskRow is a desk that changes with its letter: what a Change carries beside it.
type DeskRow struct {
	Run    background.RunID
	Tenant string
	Desk   Desk
}

const setDesksSQL = `
INSERT INTO recourse.desk (run_id, tenant, held, hold_reason, reprocess_eligible, manual_review_required, mark_reason, warned, ends_at)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::bool[], $4::text[], $5::bool[], $6::bool[], $7::text[], $8::bool[], $9::timestamptz[])
ON CONFLICT (run_id) DO UPDATE SET held = excluded.held, hold_reason = excluded.hold_reason, reprocess_eligible = excluded.reprocess_eligible,
  manual_review_required = excluded.manual_review_required, mark_reason = excluded.mark_reason, warned = excluded.warned, ends_at = excluded.ends_at`

func (DeskRow) point() string { return failpoint.Desk }

func (d DeskRow) write(ctx context.Context, tx *sql.Tx) error { return setDesks(ctx, tx, []DeskRow{d}) }

func setDesks(ctx context.Context, tx *sql.Tx, desks []DeskRow) error {
	if len(desks) == 0 {
		return nil
	}
	c := newColumns(9, len(desks))
	for _, d := range desks {
		c.id(d.Run)
		c.str(d.Tenant)
		c.bool(d.Desk.Held)
		c.str(d.Desk.HoldReason)
		c.optBool(d.Desk.Reprocess)
		c.optBool(d.Desk.Review)
		c.str(d.Desk.MarkReason)
		c.bool(!d.Desk.EndsAt.IsZero())
		c.time(d.Desk.EndsAt)
	}
	_, err := tx.ExecContext(ctx, setDesksSQL, c.args()...)
	return err
}

func (c *columns) optBool(v *bool) {
	if v == nil {
		c.null()
		return
	}
	c.bool(*v)
}

// Cleared is the desk of a letter that goes, and with it the payload of a task of a
// plain family. What a settlement asked the escrow service stays: a payment that is
// found later is read with it.
type Cleared struct{ Run background.RunID }

func (Cleared) point() string { return failpoint.Desk }

func (c Cleared) write(ctx context.Context, tx *sql.Tx) error {
	return clearDesks(ctx, tx, []background.RunID{c.Run})
}

func clearDesks(ctx context.Context, tx *sql.Tx, runs []background.RunID) error {
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
