package search

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"strings"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/signature"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// facetDigest identifies a facet group by a hash of its key.
type facetDigest [sha256.Size]byte

// facetKey is the facet values that the letters of a group share.
type facetKey struct {
	tenant, status, family, queue, jobType, outcome, reason, class, errorType, currency, signature, constant, replayedBy string

	whole, held, unresolved, eligible, review bool
}

func (d *deadRun) facetKey() facetKey {
	s := signature.Of(d.ErrorType, d.ErrorText)
	return facetKey{
		tenant: d.Tenant, status: d.Letter, family: d.Family, queue: d.Queue, jobType: d.JobType, outcome: d.Outcome, reason: d.Reason,
		class: d.Class, errorType: d.ErrorType, currency: d.Currency, signature: s.Text, constant: s.Constant, replayedBy: d.replayedBy,
		whole: s.Whole, held: d.Held, unresolved: d.unresolved(), eligible: d.eligible(), review: d.review(),
	}
}

func (s *facetKey) texts() []string {
	return []string{s.tenant, s.status, s.family, s.queue, s.jobType, s.outcome, s.reason, s.class, s.errorType, s.currency, s.signature, s.constant, s.replayedBy}
}

func (s *facetKey) flags() []bool {
	return []bool{s.whole, s.held, s.unresolved, s.eligible, s.review}
}

func (s *facetKey) digest() facetDigest {
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
	facetGroupIDsSQL = `SELECT id, digest FROM recourse.facet_groups WHERE digest = ANY($1::bytea[])`

	newFacetGroupsSQL = `INSERT INTO recourse.facet_groups (digest, tenant, status, family, queue, job_type, outcome, reason_code, class, error_type, currency, signature, constant, replayed_by,
  whole, held, unresolved, eligible, review)
SELECT * FROM unnest($1::bytea[],$2::text[],$3::text[],$4::text[],$5::text[],$6::text[],$7::text[],$8::text[],$9::text[],$10::text[],$11::text[],$12::text[],$13::text[],$14::text[],
  $15::bool[],$16::bool[],$17::bool[],$18::bool[],$19::bool[]) RETURNING id, digest`

	// upsertLettersSQL writes letters as they are now, and deletes purged ones. It returns
	// how many rows it deleted, inserted and changed.
	upsertLettersSQL = `
WITH gone AS (
  DELETE FROM recourse.letters WHERE run_id = ANY($1::uuid[]) RETURNING 1
), put AS (
INSERT INTO recourse.letters AS l (run_id, tenant, facet_group, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, notification_number, error_text, trigrams)
SELECT run_id, tenant, facet_group, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, notification_number, error_text, trigrams::int[]
FROM unnest($2::uuid[],$3::text[],$4::bigint[],$5::text[],$6::text[],$7::text[],$8::timestamptz[],$9::timestamptz[],$10::bigint[],$11::bigint[],$12::int[],$13::int[],$14::int[],$15::text[],$16::text[])
  AS u(run_id, tenant, facet_group, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, notification_number, error_text, trigrams)
ON CONFLICT (run_id) DO UPDATE SET tenant = excluded.tenant, facet_group = excluded.facet_group, transaction = excluded.transaction, escrow = excluded.escrow, dead_at = excluded.dead_at, submission = excluded.submission, last_seen_at = excluded.last_seen_at, amount = excluded.amount,
  at_risk = excluded.at_risk, attempts = excluded.attempts, replays = excluded.replays, notification_number = excluded.notification_number, error_text = excluded.error_text,
  trigrams = excluded.trigrams
WHERE (l.tenant, l.facet_group, l.transaction, l.escrow, l.dead_at, l.submission, l.last_seen_at, l.amount, l.at_risk, l.attempts, l.replays, l.notification_number, l.error_text, l.trigrams)
  IS DISTINCT FROM (excluded.tenant, excluded.facet_group, excluded.transaction, excluded.escrow, excluded.dead_at, excluded.submission, excluded.last_seen_at, excluded.amount, excluded.at_risk,
    excluded.attempts, excluded.replays, excluded.notification_number, excluded.error_text, excluded.trigrams)
RETURNING xmax = 0 AS made)
SELECT (SELECT count(*) FROM gone), count(*) FILTER (WHERE made), count(*) FILTER (WHERE NOT made) FROM put`
)

// writeResult counts what writeLetters changed.
type writeResult struct{ cases, removed, added, changed int }

// writeLetters brings the index rows of dead runs up to date. It deletes those of purged
// letters.
func writeLetters(ctx context.Context, tx *sql.Tx, found []deadRun) (w writeResult, err error) {
	cases := map[uuid.UUID]bool{}
	facets := make([]facetKey, len(found))
	for i := range found {
		cases[found[i].CaseID] = true
		facets[i] = found[i].facetKey()
	}
	if w.cases = len(cases); len(found) == 0 {
		return w, nil
	}
	ids, err := facetGroupIDs(ctx, tx, found, facets)
	if err != nil {
		return w, err
	}
	removed, kept, substrings := pg.NewTextColumns(1, 0), pg.NewTextColumns(15, len(found)), shortSubstrings{}
	for i := range found {
		d := &found[i]
		if background.LetterStatus(d.Letter) == background.LetterPurged {
			removed.ID(d.ID)
			continue
		}
		kept.ID(d.ID)
		kept.Str(d.Tenant)
		kept.Int(ids[facets[i].digest()])
		kept.Str(d.transaction())
		kept.Str(d.Submission)
		kept.Str(d.Escrow)
		kept.Time(d.DeadAt)
		kept.Time(d.SeenAt)
		kept.Int(d.Amount)
		kept.Int(d.AtRisk)
		kept.Int(int64(d.Attempts))
		kept.Int(int64(d.replays))
		kept.Int(int64(d.NotificationNumber))
		if facets[i].whole { // the constant part is the whole message
			kept.Str("")
			kept.Str("{}")
			continue
		}
		message := strings.ToLower(d.ErrorText)
		substrings.add(constantKey{d.Tenant, facets[i].constant}, message)
		kept.Str(message)
		kept.Str(arrayLiteral(storedTrigrams(d.Tenant, message, facets[i].constant)))
	}
	if err := substrings.store(ctx, tx); err != nil {
		return w, err
	}
	err = tx.QueryRowContext(ctx, upsertLettersSQL, append(removed.Args(), kept.Args()...)...).Scan(&w.removed, &w.added, &w.changed)
	return w, err
}

// facetGroupIDs returns the ids of the facet groups of letters, and inserts those that do
// not exist. Only the holder of the projection's lock inserts any.
func facetGroupIDs(ctx context.Context, tx *sql.Tx, found []deadRun, facets []facetKey) (map[facetDigest]int64, error) {
	wanted := map[facetDigest]*facetKey{}
	for i := range facets {
		if background.LetterStatus(found[i].Letter) != background.LetterPurged {
			wanted[facets[i].digest()] = &facets[i]
		}
	}
	c := pg.NewTextColumns(1, len(wanted))
	for d := range wanted {
		c.Bytes(d[:])
	}
	ids := make(map[facetDigest]int64, len(wanted))
	if err := scanFacetGroupIDs(ctx, tx, ids, facetGroupIDsSQL, c.Args()...); err != nil {
		return nil, err
	}
	added := pg.NewTextColumns(19, 0)
	for d, s := range wanted {
		if _, exists := ids[d]; exists {
			continue
		}
		added.Bytes(d[:])
		for _, t := range s.texts() {
			added.Str(t)
		}
		for _, f := range s.flags() {
			added.Bool(f)
		}
	}
	if added.Rows == 0 {
		return ids, nil
	}
	return ids, scanFacetGroupIDs(ctx, tx, ids, newFacetGroupsSQL, added.Args()...)
}

func scanFacetGroupIDs(ctx context.Context, tx *sql.Tx, into map[facetDigest]int64, query string, args ...any) error {
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
		into[facetDigest(name)] = id
	}
	return rows.Err()
}
