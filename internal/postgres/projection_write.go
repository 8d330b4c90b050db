package postgres

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"strings"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/signature"
)

// digest names a shape by everything that it says.
type digest [sha256.Size]byte

// shapeOf is what a letter has in common with others.
type shapeOf struct {
	tenant, standing, family, queue, jobType, outcome, reason, class, errorType, currency, signature, constant, replayedBy string

	whole, held, unresolved, eligible, review bool
}

func (d *deadRun) shape() shapeOf {
	s := signature.Of(d.ErrorType, d.ErrorText)
	return shapeOf{
		tenant: d.Tenant, standing: d.Letter, family: d.Family, queue: d.Queue, jobType: d.Family, outcome: d.Outcome, reason: d.Reason,
		class: d.Class, errorType: d.ErrorType, currency: d.Currency, signature: s.Text, constant: s.Constant, replayedBy: d.replayedBy,
		whole: s.Whole, held: d.Held, unresolved: d.unresolved(), eligible: d.eligible(), review: d.review(),
	}
}

func (s *shapeOf) texts() []string {
	return []string{s.tenant, s.standing, s.family, s.queue, s.jobType, s.outcome, s.reason, s.class, s.errorType, s.currency, s.signature, s.constant, s.replayedBy}
}

func (s *shapeOf) flags() []bool {
	return []bool{s.whole, s.held, s.unresolved, s.eligible, s.review}
}

func (s *shapeOf) digest() digest {
	var text []byte
	for _, t := range s.texts() {
		text = append(binary.BigEndian.AppendUint32(text, uint32(len(t))), t...)
	}
	for _, f := range s.flags() {
		if f {
			text = append(text, 1)
			continue
		}
		text = append(text, 0)
	}
	return sha256.Sum256(text)
}

const (
	shapeIDsSQL = `SELECT id, digest FROM recourse.letter_shapes WHERE digest = ANY($1::bytea[])`

	newShapesSQL = `INSERT INTO recourse.letter_shapes (digest, tenant, standing, family, queue, job_type, outcome, reason_code, class, error_type, currency, signature, constant, replayed_by,
  whole, held, unresolved, eligible, review)
SELECT * FROM unnest($1::bytea[],$2::text[],$3::text[],$4::text[],$5::text[],$6::text[],$7::text[],$8::text[],$9::text[],$10::text[],$11::text[],$12::text[],$13::text[],$14::text[],
  $15::bool[],$16::bool[],$17::bool[],$18::bool[],$19::bool[]) RETURNING id, digest`

	// lettersSQL writes letters as they are, and takes those away that are purged. It counts
	// what that changed.
	lettersSQL = `
WITH gone AS (
  DELETE FROM recourse.letters WHERE run_id = ANY($1::uuid[]) RETURNING 1
), put AS (
INSERT INTO recourse.letters AS l (run_id, tenant, shape, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, bell, error_text, grams)
SELECT run_id, tenant, shape, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, bell, error_text, grams::int[]
FROM unnest($2::uuid[],$3::text[],$4::bigint[],$5::text[],$6::text[],$7::text[],$8::timestamptz[],$9::timestamptz[],$10::bigint[],$11::bigint[],$12::int[],$13::int[],$14::int[],$15::text[],$16::text[])
  AS u(run_id, tenant, shape, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, bell, error_text, grams)
ON CONFLICT (run_id) DO UPDATE SET tenant = excluded.tenant, shape = excluded.shape, transaction = excluded.transaction, escrow = excluded.escrow, dead_at = excluded.dead_at, submission = excluded.submission, last_seen_at = excluded.last_seen_at, amount = excluded.amount,
  at_risk = excluded.at_risk, attempts = excluded.attempts, replays = excluded.replays, bell = excluded.bell, error_text = excluded.error_text,
  grams = excluded.grams
WHERE (l.tenant, l.shape, l.transaction, l.escrow, l.dead_at, l.submission, l.last_seen_at, l.amount, l.at_risk, l.attempts, l.replays, l.bell, l.error_text, l.grams)
  IS DISTINCT FROM (excluded.tenant, excluded.shape, excluded.transaction, excluded.escrow, excluded.dead_at, excluded.submission, excluded.last_seen_at, excluded.amount, excluded.at_risk,
    excluded.attempts, excluded.replays, excluded.bell, excluded.error_text, excluded.grams)
RETURNING xmax = 0 AS made)
SELECT (SELECT count(*) FROM gone), count(*) FILTER (WHERE made), count(*) FILTER (WHERE NOT made) FROM put`
)

// lettersWritten is what bringing letters up to date changed.
type lettersWritten struct{ cases, removed, made, changed int }

// writeLetters brings the letters of dead runs up to date. What is purged is no letter any
// more.
func writeLetters(ctx context.Context, tx *sql.Tx, found []deadRun) (w lettersWritten, err error) {
	cases := map[uuid.UUID]bool{}
	shapes := make([]shapeOf, len(found))
	for i := range found {
		cases[found[i].CaseID] = true
		shapes[i] = found[i].shape()
	}
	if w.cases = len(cases); len(found) == 0 {
		return w, nil
	}
	ids, err := shapeIDs(ctx, tx, found, shapes)
	if err != nil {
		return w, err
	}
	gone, kept, short := newColumns(1, 0), newColumns(15, len(found)), shortTexts{}
	for i := range found {
		d := &found[i]
		if background.Letter(d.Letter) == background.LetterPurged {
			gone.id(d.ID)
			continue
		}
		kept.id(d.ID)
		kept.str(d.Tenant)
		kept.int(ids[shapes[i].digest()])
		kept.str(d.transaction())
		kept.str(d.Submission)
		kept.str(d.Escrow)
		kept.time(d.DeadAt)
		kept.time(d.SeenAt)
		kept.int(d.Amount)
		kept.int(d.AtRisk)
		kept.int(int64(d.Attempts))
		kept.int(int64(d.replays))
		kept.int(int64(d.Bell))
		if shapes[i].whole { // which holds all of the message
			kept.str("")
			kept.str("{}")
			continue
		}
		message := strings.ToLower(d.ErrorText)
		short.add(constantOf{d.Tenant, shapes[i].constant}, message)
		kept.str(message)
		kept.str(arrayOf(gramsOf(d.Tenant, message, shapes[i].constant)))
	}
	if err := short.tell(ctx, tx); err != nil {
		return w, err
	}
	err = tx.QueryRowContext(ctx, lettersSQL, append(gone.args(), kept.args()...)...).Scan(&w.removed, &w.made, &w.changed)
	return w, err
}

// shapeIDs finds the shapes of letters, and makes those that there are not yet. Only
// the holder of the projection makes any.
func shapeIDs(ctx context.Context, tx *sql.Tx, found []deadRun, shapes []shapeOf) (map[digest]int64, error) {
	wanted := map[digest]*shapeOf{}
	for i := range shapes {
		if background.Letter(found[i].Letter) != background.LetterPurged {
			wanted[shapes[i].digest()] = &shapes[i]
		}
	}
	c := newColumns(1, len(wanted))
	for d := range wanted {
		c.bytes(d[:])
	}
	ids := make(map[digest]int64, len(wanted))
	if err := readShapes(ctx, tx, ids, shapeIDsSQL, c.args()...); err != nil {
		return nil, err
	}
	fresh := newColumns(19, 0)
	for d, s := range wanted {
		if _, known := ids[d]; known {
			continue
		}
		fresh.bytes(d[:])
		for _, t := range s.texts() {
			fresh.str(t)
		}
		for _, f := range s.flags() {
			fresh.bool(f)
		}
	}
	if fresh.rows == 0 {
		return ids, nil
	}
	return ids, readShapes(ctx, tx, ids, newShapesSQL, fresh.args()...)
}

func readShapes(ctx context.Context, tx *sql.Tx, into map[digest]int64, query string, args ...any) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var name []byte
		if err := rows.Scan(&id, &name); err != nil {
			return err
		}
		into[digest(name)] = id
	}
	return rows.Err()
}
