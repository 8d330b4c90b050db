package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	_ "github.com/lib/pq" // the driver

	"github.com/recourse-dev/recourse/internal/localpg"
)

// The peers keep settlements and their evidence in these tables, as a competent
// developer writes them by hand. They have a row of evidence at submit, at each retry
// and at the end: two for a success, four for a death.
const evidenceSchema = `
CREATE TABLE settlements (
    id         text PRIMARY KEY,
    escrow     text NOT NULL,
    outcome    text NOT NULL,
    amount     bigint NOT NULL,
    currency   text NOT NULL,
    state      text NOT NULL,
    lifecycle  text NOT NULL,
    reason     text NOT NULL,
    attempts   int NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE TABLE evidence (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    settlement_id text NOT NULL REFERENCES settlements,
    source        text NOT NULL,
    subtype       text NOT NULL,
    actor         text NOT NULL,
    at            timestamptz NOT NULL,
    payload       jsonb NOT NULL
);
CREATE INDEX evidence_settlement ON evidence (settlement_id, id);`

const (
	insertSettlement = `INSERT INTO settlements (id, escrow, outcome, amount, currency, state, lifecycle, reason, attempts, updated_at)
		VALUES ($1, $2, 'release', $3, 'EUR', 'approved-for-settlement', 'hold-active', '', 0, $4)`
	insertEvidence = `INSERT INTO evidence (settlement_id, source, subtype, actor, at, payload) VALUES ($1, $2, $3, $4, $5, $6)`
	// An attempt that is already recorded updates nothing.
	updateSettlement = `UPDATE settlements SET state = $2, lifecycle = $3, reason = $4, attempts = $5, updated_at = $6
		WHERE id = $1 AND attempts = $5 - 1`
)

var (
	errBusy         = errors.New("the escrow service is busy")
	errExtraAttempt = errors.New("the attempt is already recorded")
)

// step is the state of a settlement after an attempt, and its row of evidence.
type step struct {
	state, lifecycle, reason string
	subtype                  string
	last                     bool // the task has ended
	payload                  []byte
}

// stepAfter returns the step to record after attempt k.
func stepAfter(k int, failure error, now time.Time) (step, error) {
	facts := map[string]any{"attempt": k, "at": now.UTC()}
	s := step{state: "settled", subtype: "attempt-succeeded", last: true}
	switch {
	case failure != nil && k < maxAttempts:
		s = step{state: "in-progress", lifecycle: "hold-active", reason: failure.Error(), subtype: "retry-scheduled"}
		facts["next_retry_at"] = now.Add(delayAfter(k)).UTC()
	case failure != nil:
		s = step{state: "dispute-ready", lifecycle: "re-escalated", reason: failure.Error(), subtype: "dead-lettered", last: true}
		facts["attempts"] = k
	}
	if failure != nil {
		facts["error"] = failure.Error()
	}
	var err error
	s.payload, err = json.Marshal(facts)
	return s, err
}

// assignment is the payload of a peer's task.
type assignment struct {
	Settlement string `json:"settlement"`
	Index      int    `json:"index"`
}

// Kind names the task for River.
func (assignment) Kind() string { return "settlement" }

func assign(i int) assignment { return assignment{Settlement: "txr_" + strconv.Itoa(i), Index: i} }

// submittedPayload is the evidence of a submit.
func submittedPayload(i int) ([]byte, error) {
	return json.Marshal(map[string]any{"adjudication": "adj_" + strconv.Itoa(i), "amount": i + 1})
}

func prepareEvidence(ctx context.Context, ownerURL string) error {
	return execute(ctx, ownerURL, evidenceSchema)
}

// grantSQL lets the application's role read and write the tables of a peer.
const grantSQL = `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ` + localpg.AppRole + `;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO ` + localpg.AppRole

// execute runs a text of SQL on a connection of its own.
func execute(ctx context.Context, databaseURL, text string) error {
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, text)
	return errors.Join(err, db.Close())
}

// verifyEvidence counts the rows that a workload must have left.
func verifyEvidence(ctx context.Context, j job) (err error) {
	db, err := sql.Open("postgres", j.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var settled, disputes, rows int
	err = db.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE state = 'settled'), count(*) FILTER (WHERE state = 'dispute-ready'),
		(SELECT count(*) FROM evidence) FROM settlements`).Scan(&settled, &disputes, &rows)
	if err != nil {
		return err
	}
	if allFail(j.Workload) {
		return errors.Join(equal("settled", settled, 0), equal("dispute-ready", disputes, j.Tasks), equal("rows of evidence", rows, 4*j.Tasks))
	}
	return errors.Join(equal("settled", settled, j.Tasks), equal("dispute-ready", disputes, 0), equal("rows of evidence", rows, 2*j.Tasks))
}
