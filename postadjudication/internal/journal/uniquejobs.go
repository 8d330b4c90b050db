package journal

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// UniqueSubmission is a submission that others with the same fingerprint may stand in the way of.
type UniqueSubmission struct {
	Submission
	Fingerprint [32]byte
	At          time.Time // now
	Until       time.Time // when its own claim to the fingerprint ends; zero: never
	// Judge gets the cases of the tenant with that fingerprint, the newest first, each with its
	// active run. It returns the change that takes the holder out of the way, or nil, or an error
	// that refuses the submission.
	Judge func(holders []Snapshot) (*Change, error)
}

const (
	fingerprintLockSQL = `SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(31) || encode($2, 'hex'), 11))`

	holdersSQL = snapshotSQL + `JOIN recourse.unique_jobs u ON u.case_id = c.id
WHERE u.tenant = $1 AND u.fingerprint = $2 AND (u.until IS NULL OR u.until > $3) AND r.id = c.run_id ORDER BY u.case_id DESC LIMIT 100`

	claimFingerprintSQL = `INSERT INTO recourse.unique_jobs (tenant, fingerprint, case_id, until) VALUES ($1, $2, $3, $4)`
)

// SubmitUnique opens a case unless a holder of its fingerprint stands in the way. Whoever reads or
// claims a fingerprint holds its advisory lock, so that of two submissions one sees the other.
// Errors are those of Submit, and of Judge.
func (j *Journal) SubmitUnique(ctx context.Context, s UniqueSubmission) (snap *Snapshot, err error) {
	snap = new(Snapshot)
	err = j.InSlowPathTx(ctx, failpoint.UniqueJob, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, fingerprintLockSQL, s.Tenant, s.Fingerprint[:]); err != nil {
			return err
		}
		holders, err := snapshots(ctx, tx, holdersSQL, s.Tenant, s.Fingerprint[:], s.At)
		var unreadables unreadable
		if errors.As(err, &unreadables) {
			for _, u := range unreadables { // it holds its fingerprint, whatever its policy is
				holders = append(holders, u.partial)
			}
		} else if err != nil {
			return err
		}
		change, err := s.Judge(holders)
		if err != nil {
			return err
		}
		if change != nil {
			res, err := j.chainAndWrite(ctx, change, func(ctx context.Context, ch *chainedChange) (result, error) {
				return applyWideTransition(ctx, tx, withLockWait(wideTransitionSQL), ch)
			})
			if err != nil {
				return err
			}
			if res != applied {
				return ErrBusy // the holder changed since it was read
			}
		}
		opening, err := s.Open()
		if err != nil {
			return err
		}
		if snap, err = j.opener.openTx(ctx, tx, opening); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, claimFingerprintSQL, s.Tenant, s.Fingerprint[:], snap.Case.ID.String(), nullTime(s.Until))
		return err
	})
	if errors.Is(err, errCaseExists) {
		seen, err := snapshotBySubject(ctx, j.batchDB, s.Tenant, s.Kind, s.Subject)
		if err != nil {
			return seen, pg.Unavailable(err)
		}
		if seen.Run.ID == s.Run {
			return seen, nil
		}
		_, err = s.Decide(seen)
		return seen, err
	}
	return snap, err
}

// ErrFingerprintHeld means that another live run holds the fingerprint of the case.
var ErrFingerprintHeld = errors.New("journal: another run holds the fingerprint")

// Revival is the SideEffect of a fork of a job that was submitted as unique: it refuses the fork with
// ErrFingerprintHeld while another case with the same fingerprint has a live run.
type Revival struct {
	Tenant string
	Case   receipts.CaseID
	At     time.Time
}

func (Revival) failpointName() string { return failpoint.UniqueJob }

func (v Revival) write(ctx context.Context, tx *sql.Tx) error {
	var fingerprint []byte
	err := tx.QueryRowContext(ctx, `SELECT fingerprint FROM recourse.unique_jobs WHERE case_id = $1 AND tenant = $2`, v.Case.String(), v.Tenant).Scan(&fingerprint)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	if _, err := tx.ExecContext(ctx, fingerprintLockSQL, v.Tenant, fingerprint); err != nil {
		return err
	}
	var held bool
	err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.unique_jobs u JOIN recourse.cases c ON c.id = u.case_id JOIN recourse.runs r ON r.id = c.run_id
WHERE u.tenant = $1 AND u.fingerprint = $2 AND u.case_id <> $3 AND r.live AND (u.until IS NULL OR u.until > $4))`, v.Tenant, fingerprint, v.Case.String(), v.At).Scan(&held)
	if err == nil && held {
		err = ErrFingerprintHeld
	}
	return err
}

// HasFingerprint reports whether a case was submitted as unique.
func (c *Cases) HasFingerprint(ctx context.Context, tenant string, id receipts.CaseID) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	err = c.readDB.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.unique_jobs WHERE case_id = $1 AND tenant = $2)`, id.String(), tenant).Scan(&found)
	return found, pg.Unavailable(err)
}

const activeRunsSQL = `SELECT c.subject, c.run_id FROM recourse.cases c WHERE c.tenant = $1 AND c.kind = $2 AND c.subject = ANY($3)`

// ActiveRuns returns the active runs of cases, by subject. Subjects without a case are left out.
func (c *Cases) ActiveRuns(ctx context.Context, tenant string, kind Kind, subjects []string) (map[string]background.RunID, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	texts := pg.NewColumns(1, len(subjects))
	for _, s := range subjects {
		texts.Str(s)
	}
	rows, err := c.readDB.QueryContext(ctx, activeRunsSQL, tenant, string(kind), texts.Args()[0])
	if err != nil {
		return nil, pg.Unavailable(err)
	}
	defer rows.Close()
	out := make(map[string]background.RunID, len(subjects))
	for rows.Next() {
		var subject, id string
		if err := rows.Scan(&subject, &id); err != nil {
			return nil, pg.Unavailable(err)
		}
		if out[subject], err = receipts.ParseRunID(id); err != nil {
			return nil, err
		}
	}
	return out, pg.Unavailable(rows.Err())
}

const outputSQL = `SELECT output FROM recourse.runs WHERE id = $1 AND tenant = $2`

// Output reads what the remote worker of a run returned with its success; nil if nothing.
func (c *Cases) Output(ctx context.Context, tenant string, id background.RunID) (output []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	err = c.readDB.QueryRowContext(ctx, outputSQL, id.String(), tenant).Scan(&output)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, background.ErrNotFound
	}
	return output, pg.Unavailable(err)
}
