package search

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/settlement"
)

// The search index of dead letters: see recourse.letters. It follows the order of events:
//
//	event log ─▶ cases with new receipts ─▶ their dead runs as they are now ─▶ letters
//
// A step is one transaction, which locks the row of recourse.projected. So an older state
// of a letter never overwrites a newer one, an interrupted step has no effect, and a
// repeated step changes nothing.

// maxStepReceipts is the most receipts in a step; a statement with more is a step of its
// own.
const maxStepReceipts = 4000

// maxPendingOutbox is the most outbox rows that are indexed before they are numbered, on
// each catch-up again. If there are more, they are numbered first.
const maxPendingOutbox = 500

// ProjectionStep is what one step did.
type ProjectionStep struct {
	Cases int  // that it looked at
	More  bool // there is more that can be taken at once
}

const (
	projectionLagSQL = `SELECT coalesce((SELECT max(last) FROM recourse.event_log), 0) > last, (SELECT count(*) FROM (SELECT FROM recourse.outbox ORDER BY id LIMIT $1) o)
FROM recourse.projected WHERE name = 'letters'`

	lockProjectionSQL = `SELECT last FROM recourse.projected WHERE name = 'letters' FOR NO KEY UPDATE`

	// stepEndSQL returns the end of a step, and whether more follows.
	stepEndSQL = `SELECT coalesce(max(last) FILTER (WHERE last <= $1 + $2), min(last), $1), count(*) FILTER (WHERE last > $1 + $2) > 0
FROM (SELECT last FROM recourse.event_log WHERE last > $1 ORDER BY last LIMIT $2 + 1) l`

	recordProjectedSQL = `UPDATE recourse.projected SET last = $1 WHERE name = 'letters' AND last <> $1`
)

// Index is the search index of dead letters. It is safe for concurrent use by any number of
// goroutines and processes.
type Index struct {
	journal      *journal.Journal
	projectionDB *sql.DB            // steps of the index
	searchDB     *sql.DB            // searches, with plans forced to the chosen index
	searches     *tenantlimit.Limit // what uses searchDB
}

// Connections for searches, and how many of them one tenant may use at the same time, so that
// many searches, exports and plans of one keep no other from searching.
const (
	searchConns       = 6
	tenantSearchConns = 3
)

// Open opens the index of a journal's database. The journal stays open for as long.
func Open(databaseURL string, j *journal.Journal) (i *Index, err error) {
	i = &Index{journal: j, searches: tenantlimit.New(searchConns, tenantSearchConns)}
	if i.projectionDB, err = pg.OpenPool(databaseURL, pg.PoolConfig{Purpose: "projection", MaxConns: 2, Settings: projectionSettings(), Dialer: j.IdleTimeout.Dialer(pg.BatchIdleLimit)}); err != nil {
		return nil, err
	}
	if i.searchDB, err = pg.OpenPool(databaseURL, pg.PoolConfig{Purpose: "search", MaxConns: searchConns, Settings: searchSettings, Binary: true, Dialer: j.IdleTimeout.Dialer(pg.ReadIdleLimit)}); err != nil {
		return nil, errors.Join(err, i.projectionDB.Close())
	}
	return i, nil
}

// Close closes the connections. It ignores their errors: nothing is left to be written by then,
// and a connection that broke before fails to close.
func (i *Index) Close() {
	_, _ = i.projectionDB.Close(), i.searchDB.Close()
}

// Do runs work on the connections of searches, of which each tenant has a share. Its error is that
// of work, or that ctx ended before the tenant's turn.
func (i *Index) Do(ctx context.Context, tenant string, work func(*sql.DB) error) (err error) {
	if waitErr := i.searches.Do(ctx, tenant, func() { err = work(i.searchDB) }); waitErr != nil {
		return pg.Wrap(waitErr)
	}
	return err
}

// Project makes one step; it does nothing while another process makes one.
func (i *Index) Project(ctx context.Context) (ProjectionStep, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	behind, _, err := i.projectionLag(ctx)
	if err != nil || !behind {
		return ProjectionStep{}, pg.Wrap(err)
	}
	done, err := i.projectStep(ctx, lockProjectionSQL+` SKIP LOCKED`, false)
	return done, pg.Wrap(err)
}

// CatchUp returns when everything that was committed before the call can be found by
// searches. It costs one query if nothing is pending; else it makes the steps itself, and
// includes receipts that are not numbered yet.
func (i *Index) CatchUp(ctx context.Context) error {
	behind, waiting, err := i.projectionLag(ctx)
	if err != nil || !behind && waiting == 0 {
		return pg.Wrap(err)
	}
	if waiting > maxPendingOutbox {
		if err := i.journal.Outbox.Drain(ctx); err != nil {
			return err
		}
	}
	for {
		done, err := i.projectStep(ctx, lockProjectionSQL, true)
		if err != nil || !done.More {
			return pg.Wrap(err)
		}
	}
}

// projectionLag reports whether the event log has entries after what is indexed, and how
// many outbox rows wait, counted up to maxPendingOutbox+1.
func (i *Index) projectionLag(ctx context.Context) (behind bool, waiting int, err error) {
	err = i.projectionDB.QueryRowContext(ctx, projectionLagSQL, maxPendingOutbox+1).Scan(&behind, &waiting)
	return behind, waiting, err
}

// projectStep makes one step. With includePending, the last step also reads the outbox, in
// one snapshot with the event log, so that no receipt is missed while it is numbered.
func (i *Index) projectStep(ctx context.Context, lockSQL string, includePending bool) (done ProjectionStep, err error) {
	tx, err := i.projectionDB.BeginTx(ctx, nil)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	var last, upTo int64
	switch err := tx.QueryRowContext(ctx, lockSQL).Scan(&last); {
	case errors.Is(err, sql.ErrNoRows):
		return done, nil
	case err != nil:
		return done, err
	}
	if err := tx.QueryRowContext(ctx, stepEndSQL, last, maxStepReceipts).Scan(&upTo, &done.More); err != nil {
		return done, err
	}
	found, err := deadRuns(ctx, tx, last, upTo, includePending && !done.More)
	if err != nil {
		return done, err
	}
	result, err := writeLetters(ctx, tx, found)
	if err != nil {
		return done, err
	}
	done.Cases = result.cases
	if _, err := tx.ExecContext(ctx, recordProjectedSQL, upTo); err != nil {
		return done, err
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Projection)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.Projection)
	return done, err
}

// projectionSettings pin the plans, end a session that idles in a transaction while it
// holds the lock, and turn off synchronous commit: what a crash of the server loses is
// indexed again.
func projectionSettings() map[string]string {
	settings := journal.SequencerSettings()
	settings["idle_in_transaction_session_timeout"] = settings["idle_session_timeout"]
	delete(settings, "idle_session_timeout")
	settings["enable_mergejoin"], settings["enable_hashjoin"], settings["synchronous_commit"] = "off", "off", "off"
	return settings
}

// deadRunsSQL reads the dead runs of the cases in the event log after $1 up to $2, and with
// $3 of those in the outbox.
const deadRunsSQL = `
WITH told AS MATERIALIZED (
  SELECT u.id FROM recourse.event_log l, unnest(l.case_ids) AS u(id) WHERE l.last > $1 AND l.last <= $2
  UNION
  SELECT u.id FROM recourse.outbox o, unnest(o.case_ids) AS u(id) WHERE $3
)` + deadRunsOfSQL

// deadRunsOfSQL reads the dead runs of the cases in told.
const deadRunsOfSQL = `
SELECT r.id, r.case_id, r.parent_id, r.tenant, r.family, CASE WHEN r.remote THEN r.target ELSE r.family END AS job_type, r.queue, r.retry_key, r.letter, r.reason, r.class, r.error_type, r.error_text, r.attempt_count, r.notification_number, r.dead_at,
  c.kind, c.subject, c.submission, c.adjudication, c.asked, CASE r.letter WHEN 'open' THEN c.reserved ELSE 0 END AS at_risk, c.unknown_open, coalesce(e.reference, '') AS reference, coalesce(e.currency, '') AS currency,
  o.request, coalesce(n.at, r.dead_at) AS seen_at, coalesce(d.held, false) AS held, d.reprocess_eligible, d.manual_review_required
FROM told t JOIN recourse.runs r ON r.case_id = t.id AND r.dead_at IS NOT NULL JOIN recourse.cases c ON c.id = r.case_id
  LEFT JOIN recourse.escrows e ON e.id = c.escrow_id LEFT JOIN recourse.operations o ON o.key = r.operation_key
  LEFT JOIN recourse.receipts n ON n.case_id = c.id AND n.seq = c.last_seq LEFT JOIN recourse.annotations d ON d.run_id = r.id`

// deadRun is one row of deadRunsSQL.
type deadRun struct {
	ID                 uuid.UUID     `db:"id"`
	CaseID             uuid.UUID     `db:"case_id"`
	ParentID           uuid.NullUUID `db:"parent_id"`
	Tenant             string        `db:"tenant"`
	Family             string        `db:"family"`
	JobType            string        `db:"job_type"` // of a job, the target of an adjudication for remote workers; the family for all others
	Queue              string        `db:"queue"`
	RetryKey           string        `db:"retry_key"`
	Letter             string        `db:"letter"`
	Reason             string        `db:"reason"`
	Class              string        `db:"class"`
	ErrorType          string        `db:"error_type"`
	ErrorText          string        `db:"error_text"`
	Attempts           int           `db:"attempt_count"`
	NotificationNumber int           `db:"notification_number"`
	DeadAt             time.Time     `db:"dead_at"`
	Kind               string        `db:"kind"`
	Subject            string        `db:"subject"`
	Submission         string        `db:"submission"`
	Outcome            string        `db:"adjudication"`
	Amount             int64         `db:"asked"`
	AtRisk             int64         `db:"at_risk"`
	UnknownOpen        int           `db:"unknown_open"`
	Escrow             string        `db:"reference"`
	Currency           string        `db:"currency"`
	Request            []byte        `db:"request"`
	SeenAt             time.Time     `db:"seen_at"`
	Held               bool          `db:"held"`
	Eligible           sql.NullBool  `db:"reprocess_eligible"`
	Review             sql.NullBool  `db:"manual_review_required"`

	replays    int
	replayedBy string
}

func deadRuns(ctx context.Context, tx *sql.Tx, after, upTo int64, includePending bool) ([]deadRun, error) {
	if includePending { // also what was numbered since
		upTo = math.MaxInt64
	}
	return readDeadRuns(ctx, tx, deadRunsSQL, after, upTo, includePending)
}

func readDeadRuns(ctx context.Context, tx *sql.Tx, query string, args ...any) ([]deadRun, error) {
	found, err := pg.QueryAll[deadRun](ctx, tx, query, args...)
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i].setFromRequest()
	}
	return found, setReplays(ctx, tx, found)
}

// setFromRequest sets what the run itself was about, from the request that was sent for it:
// for an older generation the case has other values now. If the request can't be read the
// values of the case stay, so that the letter can be found.
func (d *deadRun) setFromRequest() {
	var sent struct {
		Outcome    string           `json:"outcome"`
		Amount     settlement.Money `json:"amount"`
		Submission string           `json:"submission_receipt_id"`
	}
	if json.Unmarshal(d.Request, &sent) == nil && sent.Outcome != "" {
		d.Outcome, d.Amount, d.Submission = sent.Outcome, sent.Amount.Minor, sent.Submission
	}
}

// transaction returns the transaction receipt id, or the retry key of a plain task.
func (d *deadRun) transaction() string {
	if journal.Kind(d.Kind) == journal.KindSettlement {
		return d.Subject
	}
	return strings.TrimPrefix(d.Subject, d.Family+":")
}

// eligible returns the mark that a person set, else the default for the class. So does
// review.
func (d *deadRun) eligible() bool {
	if d.Eligible.Valid {
		return d.Eligible.Bool
	}
	c := background.Class(d.Class)
	failed := c == background.NotExecuted || c == background.Unknown && journal.Kind(d.Kind) != journal.KindSettlement
	return failed && d.Reason == background.ReasonRetryExhausted
}

func (d *deadRun) review() bool {
	if d.Review.Valid {
		return d.Review.Bool
	}
	return d.unresolved()
}

// unresolved reports whether money may have moved without a known outcome.
func (d *deadRun) unresolved() bool {
	return journal.Kind(d.Kind) == journal.KindSettlement && d.UnknownOpen > 0
}

const replaysSQL = `SELECT case_id, run_id, actor FROM recourse.receipts
WHERE case_id = ANY($1::uuid[]) AND subtype IN ('manual-retry-requested', 'replayed') AND run_id IS NOT NULL ORDER BY case_id, seq`

// setReplays sets how often each letter's lineage was tried again, including the letter's
// own fork, and who did it last.
func setReplays(ctx context.Context, tx *sql.Tx, found []deadRun) error {
	byID := make(map[uuid.UUID]*deadRun, len(found))
	cases, requested := pg.NewTextColumns(1, 0), map[uuid.UUID]bool{}
	for i := range found {
		d := &found[i]
		byID[d.ID] = d
		if hasFork := d.ParentID.Valid || background.LetterStatus(d.Letter) == background.LetterForked; hasFork && !requested[d.CaseID] {
			requested[d.CaseID] = true
			cases.ID(d.CaseID)
		}
	}
	if len(requested) == 0 {
		return nil
	}
	rows, err := tx.QueryContext(ctx, replaysSQL, cases.Args()...)
	if err != nil {
		return err
	}
	defer rows.Close()
	actors := map[uuid.UUID]string{}
	for rows.Next() {
		var caseID, run uuid.UUID
		var actor string
		if err := rows.Scan(&caseID, &run, &actor); err != nil {
			return err
		}
		actors[run] = actor
	}
	for _, d := range byID {
		for ancestor := d; ancestor != nil; ancestor = byID[ancestor.ParentID.UUID] {
			if ancestor == d && background.LetterStatus(d.Letter) != background.LetterForked {
				continue
			}
			if d.replays++; d.replays == 1 {
				d.replayedBy = actors[ancestor.ID]
			}
		}
	}
	return rows.Err()
}
