package search

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// RebuildResult counts what a rebuild found wrong and repaired.
type RebuildResult struct {
	Examined    int // letters compared
	Added       int // missing rows
	Changed     int // rows with other values
	Removed     int // rows of runs that are not dead letters
	FacetGroups int // groups with other counts or facet values, and their days with other counts
}

// Repaired returns the number of repairs.
func (r *RebuildResult) Repaired() int { return r.Added + r.Changed + r.Removed + r.FacetGroups }

// RebuildPart is a part of the index; a rebuild does them in this order.
type RebuildPart int

// The parts.
const (
	RebuildGroups    RebuildPart = iota // counts of facet groups
	RebuildLetters                      // rows of dead letters
	RebuildExtraRows                    // rows of runs that are not dead letters
	rebuildParts
)

// RebuildCursor is the progress of a rebuild. Its zero value is the beginning.
type RebuildCursor struct {
	Part  RebuildPart
	After Position // last one that was compared
}

// Done reports whether the rebuild is complete.
func (p RebuildCursor) Done() bool { return p.Part == rebuildParts }

// Letters of cases with receipts that are not indexed yet are skipped: the projection will
// write them.
const (
	deadPageSQL = stored.Unprojected + `
SELECT r.id, r.dead_at, r.case_id, r.case_id IN (SELECT id FROM waiting) FROM recourse.runs r
WHERE r.tenant = $1 AND r.dead_at IS NOT NULL AND (r.dead_at, r.id) > ($2, $3) ORDER BY r.dead_at, r.id LIMIT $4`
	extraPageSQL = stored.Unprojected + `
SELECT l.run_id, l.dead_at, coalesce(r.case_id, l.run_id), r.id IS NOT NULL AND (r.dead_at IS NOT NULL AND r.letter <> 'purged' OR r.case_id IN (SELECT id FROM waiting))
FROM (SELECT run_id, dead_at FROM recourse.letters WHERE tenant = $1 AND (dead_at, run_id) > ($2, $3) ORDER BY dead_at, run_id LIMIT $4) l
  LEFT JOIN recourse.runs r ON r.id = l.run_id AND r.tenant = $1 ORDER BY l.dead_at, l.run_id`
	deadOfCasesSQL = `WITH told AS MATERIALIZED (SELECT DISTINCT id FROM unnest($1::uuid[]) AS u(id))` + deadRunsOfSQL

	// recountGroupsSQL corrects the counts of groups, and widens bounds that are too
	// narrow.
	recountGroupsSQL = `
UPDATE recourse.facet_groups s SET letters = d.n, at_risk = d.risk, attempts = d.tries,
  first_dead = least(s.first_dead, d.first_dead), last_dead = greatest(s.last_dead, d.last_dead), first_seen = least(s.first_seen, d.first_seen), last_seen = greatest(s.last_seen, d.last_seen),
  least_amount = least(s.least_amount, d.least_amount), most_amount = greatest(s.most_amount, d.most_amount),
  least_attempts = least(s.least_attempts, d.least_attempts), most_attempts = greatest(s.most_attempts, d.most_attempts), most_lag = greatest(s.most_lag, d.most_lag)
FROM (` + stored.FacetGroupCounts + `) d
WHERE s.id = d.id AND ` + stored.FacetGroupDiffers

	// recountDaysSQL corrects the counts of days, and returns how many differed.
	recountDaysSQL = `
WITH d AS MATERIALIZED (` + stored.FacetGroupDayDiffers + `), gone AS (
  DELETE FROM recourse.facet_group_days s USING d WHERE d.n IS NULL AND s.facet_group = d.facet_group AND s.day = d.day
), put AS (
  INSERT INTO recourse.facet_group_days SELECT facet_group, day, n, risk, tries FROM d WHERE n IS NOT NULL
  ON CONFLICT (facet_group, day) DO UPDATE SET letters = excluded.letters, at_risk = excluded.at_risk, attempts = excluded.attempts
)
SELECT count(*) FROM d`

	repairGroupsSQL = `UPDATE recourse.facet_groups s SET (tenant, status, family, queue, job_type, outcome, reason_code, class, error_type, currency, signature, constant, replayed_by, whole, held, unresolved, eligible, review)
  = (u.tenant, u.status, u.family, u.queue, u.job_type, u.outcome, u.reason_code, u.class, u.error_type, u.currency, u.signature, u.constant, u.replayed_by, u.whole, u.held, u.unresolved, u.eligible, u.review)
FROM unnest($1::bytea[],$2::text[],$3::text[],$4::text[],$5::text[],$6::text[],$7::text[],$8::text[],$9::text[],$10::text[],$11::text[],$12::text[],$13::text[],$14::text[],
  $15::bool[],$16::bool[],$17::bool[],$18::bool[],$19::bool[]) AS u(digest, tenant, status, family, queue, job_type, outcome, reason_code, class, error_type, currency, signature, constant, replayed_by,
  whole, held, unresolved, eligible, review)
WHERE s.digest = u.digest AND (s.tenant, s.status, s.family, s.queue, s.job_type, s.outcome, s.reason_code, s.class, s.error_type, s.currency, s.signature, s.constant, s.replayed_by, s.whole, s.held, s.unresolved, s.eligible, s.review)
  IS DISTINCT FROM (u.tenant, u.status, u.family, u.queue, u.job_type, u.outcome, u.reason_code, u.class, u.error_type, u.currency, u.signature, u.constant, u.replayed_by, u.whole, u.held, u.unresolved, u.eligible, u.review)`
)

// Rebuild compares the next rows of a tenant's search index with the dead letters,
// and writes those that differ, with a receipt in the same commit. It writes nothing if
// none differs. It holds the projection's lock meanwhile, so that both can run at once. A
// repeated step changes nothing more.
func (i *Index) Rebuild(ctx context.Context, tenant string, from RebuildCursor, limit int, receiptOf func(RebuildResult) receipts.Draft) (done RebuildResult, next RebuildCursor, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	tx, err := i.projectionDB.BeginTx(ctx, nil)
	if err != nil {
		return done, from, pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	if done, next, err = rebuildStep(ctx, tx, tenant, from, limit); err != nil {
		return done, from, pg.Wrap(err)
	}
	if done.Repaired() == 0 {
		return done, next, nil
	}
	draft := receiptOf(done)
	draft.Subtype = receipts.DeadLettersRebuilt
	if err := journal.AppendOperation(ctx, tx, tenant, journal.IndexLog, draft); err != nil {
		return done, from, pg.Wrap(err)
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Rebuild)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.Rebuild)
	if err != nil {
		return done, from, pg.Wrap(err)
	}
	i.journal.SignalCommitted()
	return done, next, nil
}

func rebuildStep(ctx context.Context, tx *sql.Tx, tenant string, from RebuildCursor, limit int) (done RebuildResult, next RebuildCursor, err error) {
	// Unlike the index, the receipt must survive a crash of the server.
	if _, err := tx.ExecContext(ctx, `SET LOCAL synchronous_commit = on`); err != nil {
		return done, from, err
	}
	var last int64
	if err := tx.QueryRowContext(ctx, lockProjectionSQL).Scan(&last); err != nil {
		return done, from, err
	}
	switch from.Part {
	case RebuildGroups:
		var days int
		if err := tx.QueryRowContext(ctx, recountDaysSQL, tenant).Scan(&days); err != nil {
			return done, from, err
		}
		groups, err := pg.RowsAffected(tx.ExecContext(ctx, recountGroupsSQL, tenant))
		done.FacetGroups = groups + days
		return done, RebuildCursor{Part: RebuildLetters}, err
	case RebuildLetters:
		page, err := readRebuildPage(ctx, tx, deadPageSQL, tenant, from.After, limit)
		if err != nil || len(page.rows) == 0 {
			return done, RebuildCursor{Part: RebuildExtraRows}, err
		}
		done, err = page.write(ctx, tx)
		return done, RebuildCursor{RebuildLetters, page.last}, err
	case RebuildExtraRows:
		page, err := readRebuildPage(ctx, tx, extraPageSQL, tenant, from.After, limit)
		if err != nil || len(page.rows) == 0 {
			return done, RebuildCursor{Part: rebuildParts}, err
		}
		done.Removed, err = page.remove(ctx, tx)
		return done, RebuildCursor{RebuildExtraRows, page.last}, err
	}
	return done, from, fmt.Errorf("the search index has no part %d", from.Part)
}

// rebuildPage is the rows of one step.
type rebuildPage struct {
	rows []rebuildRow
	last Position
}

type rebuildRow struct {
	run, caseID uuid.UUID
	skip        bool // leave it unchanged
}

func readRebuildPage(ctx context.Context, tx *sql.Tx, query, tenant string, after Position, limit int) (page rebuildPage, err error) {
	from := time.UnixMicro(after.Value).UTC()
	if after == (Position{}) {
		from = time.Time{}
	}
	rows, err := tx.QueryContext(ctx, query, tenant, from, after.Run.String(), limit)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	for rows.Next() {
		var r rebuildRow
		var died time.Time
		if err := rows.Scan(&r.run, &died, &r.caseID, &r.skip); err != nil {
			return page, err
		}
		page.rows, page.last = append(page.rows, r), Position{died.UnixMicro(), background.RunID(r.run)}
	}
	return page, rows.Err()
}

// write brings the letters of the page up to date, as the projection does.
func (p *rebuildPage) write(ctx context.Context, tx *sql.Tx) (done RebuildResult, err error) {
	cases := pg.NewTextColumns(1, len(p.rows))
	for _, r := range p.rows {
		if !r.skip {
			cases.ID(r.caseID)
			done.Examined++
		}
	}
	found, err := readDeadRuns(ctx, tx, deadOfCasesSQL, cases.Args()...)
	if err != nil {
		return done, err
	}
	if done.FacetGroups, err = repairGroups(ctx, tx, found); err != nil {
		return done, err
	}
	w, err := writeLetters(ctx, tx, found)
	done.Added, done.Changed, done.Removed = w.added, w.changed, w.removed
	return done, err
}

// repairGroups corrects the facet values of groups. Their digests identify them.
func repairGroups(ctx context.Context, tx *sql.Tx, found []deadRun) (int, error) {
	seen, c := map[facetDigest]bool{}, pg.NewTextColumns(19, 0)
	for i := range found {
		s := found[i].facetKey()
		d := s.digest()
		if seen[d] || background.LetterStatus(found[i].Letter) == background.LetterPurged {
			continue
		}
		seen[d] = true
		c.Bytes(d[:])
		for _, t := range s.texts() {
			c.Str(t)
		}
		for _, f := range s.flags() {
			c.Bool(f)
		}
	}
	return pg.RowsAffected(tx.ExecContext(ctx, repairGroupsSQL, c.Args()...))
}

const removeExtraRowsSQL = `DELETE FROM recourse.letters WHERE run_id = ANY($1::uuid[])`

// remove deletes the rows of runs that are not dead letters.
func (p *rebuildPage) remove(ctx context.Context, tx *sql.Tx) (int, error) {
	extra := pg.NewTextColumns(1, 0)
	for _, r := range p.rows {
		if !r.skip {
			extra.ID(r.run)
		}
	}
	if extra.Rows == 0 {
		return 0, nil
	}
	return pg.RowsAffected(tx.ExecContext(ctx, removeExtraRowsSQL, extra.Args()...))
}
