package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// Brakes: see background.BrakeLedger for what each promises.

// barsSQL holds for a run r that a brake k keeps from being claimed: the guard of the
// claim. The probe may be claimed; for everything else it is parked all the same.
const (
	ofRunSQL    = `k.tenant = r.tenant AND k.family = r.family AND k.target = r.target`
	beyondSQL   = `k.state = 'easing' AND (r.due_at, r.id) > (k.let_due, k.let_run)`
	barsSQL     = ofRunSQL + ` AND (k.state = 'pulled' AND k.probe_run IS DISTINCT FROM r.id OR ` + beyondSQL + `)`
	parkedSQL   = `EXISTS (SELECT FROM recourse.brakes k WHERE ` + ofRunSQL + ` AND (k.state = 'pulled' OR ` + beyondSQL + `))`
	brakeSQL    = `SELECT tenant, family, target, case_id, state, by_hand, actor, cause, reason, at, version, probe_run, let_due, let_run, goal FROM recourse.brakes `
	ofTargetSQL = `WHERE tenant = $1 AND family = $2 AND target = $3`
)

type brakeRow struct {
	Tenant   string        `db:"tenant"`
	Family   string        `db:"family"`
	Target   string        `db:"target"`
	CaseID   uuid.UUID     `db:"case_id"`
	State    string        `db:"state"`
	ByHand   bool          `db:"by_hand"`
	Actor    string        `db:"actor"`
	Cause    string        `db:"cause"`
	Reason   string        `db:"reason"`
	At       time.Time     `db:"at"`
	Version  int64         `db:"version"`
	ProbeRun uuid.NullUUID `db:"probe_run"`
	LetDue   time.Time     `db:"let_due"`
	LetRun   uuid.UUID     `db:"let_run"`
	Goal     time.Time     `db:"goal"`
}

func (r *brakeRow) brake() background.Brake {
	return background.Brake{
		Target: background.Target{Tenant: r.Tenant, Family: r.Family, Name: r.Target},
		State:  background.BrakeState(r.State), ByHand: r.ByHand, Actor: r.Actor, Cause: r.Cause, Reason: r.Reason, At: r.At.UTC(), Version: r.Version,
		Probe: background.RunID(r.ProbeRun.UUID), LetGo: background.Cursor{DueAt: r.LetDue.UTC(), ID: background.RunID(r.LetRun)}, Goal: r.Goal.UTC(),
	}
}

// Brakes lists the brakes that are not released.
func (j *Journal) Brakes(ctx context.Context) ([]background.Brake, error) {
	return brakesOf(ctx, j.reads, `WHERE state <> 'released' ORDER BY tenant, family, target`)
}

// TenantBrakes lists all brakes that a tenant has ever had.
func (j *Journal) TenantBrakes(ctx context.Context, tenant string) ([]background.Brake, error) {
	return brakesOf(ctx, j.reads, `WHERE tenant = $1 ORDER BY family, target`, tenant)
}

func brakesOf(ctx context.Context, q sqlx.QueryerContext, where string, args ...any) ([]background.Brake, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var rows []brakeRow
	if err := sqlx.SelectContext(ctx, q, &rows, brakeSQL+where, args...); err != nil {
		return nil, unavailable(err)
	}
	out := make([]background.Brake, len(rows))
	for i := range rows {
		out[i] = rows[i].brake()
	}
	return out, nil
}

// MoveBrake changes a brake together with its receipt. It is the only writer of a
// brake's case, and holds the brake's row meanwhile. It is ErrBusy, and nothing is
// changed, when another transaction holds the brake for too long.
func (j *Journal) MoveBrake(ctx context.Context, t background.Target, decide func(background.Brake) (background.Brake, bool)) (now background.Brake, moved bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementLimit)
	defer cancel()
	tx, err := j.moveLane.db.BeginTx(ctx, nil)
	if err != nil {
		return now, false, unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	row, err := lockBrake(ctx, tx, t)
	if err != nil {
		return now, false, contended(err)
	}
	was := row.brake()
	next, moved := decide(was)
	if !moved {
		return was, false, nil
	}
	if err := setBrake(ctx, tx, next); err != nil {
		return was, false, contended(err)
	}
	if err := tellBrake(ctx, tx, receipts.CaseID(row.CaseID), was, next); err != nil {
		return was, false, contended(err)
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Brake)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.Brake)
	if err != nil {
		return was, false, unavailable(err)
	}
	j.announce()
	return next, true, nil
}

// lockBrake locks the row of a target's brake, made now when there is none.
func lockBrake(ctx context.Context, tx *sql.Tx, t background.Target) (row brakeRow, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return row, err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.brakes (tenant, family, target, case_id, state, by_hand, actor, cause, reason, at, version, let_due, let_run, goal)
		VALUES ($1, $2, $3, $4, 'released', false, '', '', '', $5, 0, $5, $6, $5) ON CONFLICT DO NOTHING`,
		t.Tenant, t.Family, t.Name, id, time.Time{}, uuid.UUID{}); err != nil {
		return row, err
	}
	rows, err := tx.QueryContext(ctx, brakeSQL+ofTargetSQL+` FOR UPDATE`, t.Tenant, t.Family, t.Name)
	if err != nil {
		return row, err
	}
	var found []brakeRow
	if err := sqlx.StructScan(rows, &found); err != nil {
		return row, err
	}
	if len(found) != 1 {
		return row, fmt.Errorf("%d brakes of one target", len(found))
	}
	return found[0], nil
}

func setBrake(ctx context.Context, tx *sql.Tx, b background.Brake) error {
	_, err := tx.ExecContext(ctx, `UPDATE recourse.brakes SET state = $4, by_hand = $5, actor = $6, cause = $7, reason = $8, at = $9, version = $10,
		probe_run = $11, let_due = $12, let_run = $13, goal = $14 `+ofTargetSQL,
		b.Tenant, b.Family, b.Name, string(b.State), b.ByHand, b.Actor, b.Cause, b.Reason, b.At, b.Version,
		nullable(b.Probe), b.LetGo.DueAt, uuid.UUID(b.LetGo.ID), b.Goal)
	return err
}

func nullable(id background.RunID) uuid.NullUUID {
	return uuid.NullUUID{UUID: uuid.UUID(id), Valid: !id.IsZero()}
}

// tellBrake writes the receipt of a brake's move into its case, by the statements
// that write all receipts.
func tellBrake(ctx context.Context, tx *sql.Tx, id receipts.CaseID, was, now background.Brake) error {
	kase := Case{ID: id, Tenant: now.Tenant, Kind: KindOperations, Subject: "brake:" + now.Family + ":" + now.Name}
	draft := receipts.Draft{Subtype: receipts.BrakeReleased, Actor: now.Actor, At: now.At, Payload: receipts.Payload{
		Family: now.Family, Target: now.Name, ReasonCode: now.Cause, Reason: now.Reason, Changes: string(was.State) + " to " + string(now.State),
	}}
	if now.State == background.BrakePulled {
		draft.Subtype = receipts.BrakePulled
	}
	return tell(ctx, tx, kase, draft)
}

// StepBrake writes where a probe or an easing stands.
func (j *Journal) StepBrake(ctx context.Context, b background.Brake) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	res, err := write(ctx, j.moveLane.db, failpoint.BrakeStep, `UPDATE recourse.brakes k SET version = $4, probe_run = $5, let_due = $6, let_run = $7 `+ofTargetSQL+`
		AND version = $4 - 1 AND state = $8 AND (probe_run IS NOT DISTINCT FROM $5
			OR NOT EXISTS (SELECT FROM recourse.runs r WHERE r.id = k.probe_run AND r.state = 'running'))`,
		b.Tenant, b.Family, b.Name, b.Version, nullable(b.Probe), b.LetGo.DueAt, uuid.UUID(b.LetGo.ID), string(b.State))
	if err != nil {
		return false, contended(err)
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

const ofTargetWaitingSQL = snapshotSQL + `WHERE r.live AND r.state <> 'running' AND r.tenant = $1 AND r.family = $2 AND r.target = $3
  AND r.due_at <= $4 AND (r.due_at, r.id) > ($5, $6) ORDER BY r.due_at, r.id LIMIT $7`

// Parked lists waiting runs of a target that are due, in order, after a cursor.
func (j *Journal) Parked(ctx context.Context, t background.Target, after background.Cursor, due time.Time, limit int) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	return runs(snapshots(ctx, j.reads, ofTargetWaitingSQL, t.Tenant, t.Family, t.Name, due, after.DueAt, after.ID.String(), limit))
}

// Runs reads runs by id.
func (j *Journal) Runs(ctx context.Context, ids []background.RunID) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	c := newColumns(1, 1)
	for _, id := range ids {
		c.id(id)
	}
	return runs(snapshots(ctx, j.reads, byRunsSQL, c.args()...))
}

// braked reports whether a run is barred by its brake.
func (j *Journal) braked(ctx context.Context, id background.RunID) (barred bool, err error) {
	err = j.reads.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.runs r JOIN recourse.brakes k ON `+barsSQL+` WHERE r.id = $1)`, id.String()).Scan(&barred)
	return barred, err
}
