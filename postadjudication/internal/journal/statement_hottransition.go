package journal

import (
	"context"
	"fmt"
	"slices"

	"github.com/lib/pq/oid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/settlement"
)

// hotTransitionSQL writes the most frequent kind of transition: of one run of one case,
// with one receipt and no reservation. What it adds to or frees from the escrow, computed
// from the sums of the case before and after, is inserted as a delta. All guards are in ok,
// which locks the newest case and run of each row and never waits; after it nothing can
// fail for a single row.
//
// It writes no claim while any circuit breaker is open: transitionSQL decides which runs
// are blocked, and a claim that is not written here is tried there.
//
// $1 sessions that claim · $2..$40 transitions, one row each; the widest column first, so
// that the driver's buffer grows least often
// returns the numbers of the rows that were written
var hotTransitionSQL = `
WITH alive AS MATERIALIZED (
  SELECT s.id FROM recourse.sessions s WHERE s.id = ANY($1::uuid[]) AND NOT s.lost FOR KEY SHARE OF s SKIP LOCKED
), ok AS MATERIALIZED (
  SELECT b.*, c.tenant, c.escrow_id, b.reserved + b.released + b.refunded - c.reserved - c.released - c.refunded AS delta
  FROM unnest(` + hotTransitionParameters.arrays(2) + `) WITH ORDINALITY AS b(` + hotTransitionParameters.names() + `,n)
  JOIN recourse.cases c ON c.id = b.case_id
  JOIN recourse.runs r ON r.id = b.run
  WHERE c.last_seq = b.seq AND c.last_link = b.link AND r.case_id = b.case_id
    AND r.state = b.state AND r.attempt_count = b.attempt AND r.token IS NOT DISTINCT FROM b.token AND r.cancel_requested = b.cancel_seen
    AND (b.new_state <> 'running' OR b.state = 'running' OR b.session IN (SELECT id FROM alive) AND NOT EXISTS (SELECT FROM recourse.circuit_breakers k WHERE k.state <> 'closed'))
  ORDER BY c.id FOR NO KEY UPDATE OF c, r SKIP LOCKED
), c AS (
  UPDATE recourse.cases c SET last_seq = b.seq + 1, last_link = b.new_link, ` + settlementParameters.assignments("b") + `
  FROM ok b WHERE c.id = b.case_id
), r AS (
  UPDATE recourse.runs r SET state = b.new_state, live = b.new_state IN ('pending','running','scheduled'), active = b.new_state IN ('pending','running','scheduled') OR b.letter = 'open',
    token = b.new_token, session_id = b.session, reason = b.why, ` + progressParameters.assignments("b") + `
  FROM ok b WHERE r.id = b.run
), i AS (
  INSERT INTO recourse.receipts (` + receiptColumns + `)
  SELECT case_id, seq + 1, run, tenant, source, subtype, actor, at, body, new_link FROM ok
), p AS (
  INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT tenant, array_agg(case_id), array_agg(seq + 1) FROM ok GROUP BY tenant
), d AS (
  INSERT INTO recourse.escrow_deltas (escrow_id, case_id, seq, delta) SELECT escrow_id, case_id, seq + 1, delta FROM ok WHERE delta <> 0
)
SELECT n, seq FROM ok`

// hotTransitionParameters are the parameters from $2 on, as addHotTransition writes them.
var hotTransitionParameters = slices.Concat(
	receiptsTable.of("body"),
	casesTable.of("id AS case_id", "last_seq AS seq", "last_link AS link", "last_link AS new_link"), settlementParameters,
	runsTable.of("id AS run", "state", "attempt_count AS attempt", "token", "cancel_requested AS cancel_seen",
		"state AS new_state", "letter", "attempt_count", "budget_spent", "recoveries", "class", "token AS new_token", "session_id AS session",
		"last_transition", "due_at", "dead_at", "reason AS why", "error_type", "error_code", "error_text"),
	receiptsTable.of("source", "subtype", "actor", "at"),
)

// claimSessionColumns and hotTransitionColumns are the parameters of hotTransitionSQL as
// they are sent.
var (
	claimSessionColumns  = pg.NewBinaryLayout(oid.T_uuid)
	hotTransitionColumns = hotTransitionParameters.layout()
)

// fitsHotTransition reports whether hotTransitionSQL can write a change: it changes one run
// and its case, and nothing that only a submission, a fork, or a change of outstanding
// calls changes.
func (s *chainedChange) fitsHotTransition() bool {
	before, after := &s.Before.Case, &s.After.Case
	return s.hasOneReceipt() && len(s.Others) == 0 && s.NewRun == nil && !s.Reserve &&
		immutableState(&before.State) == immutableState(&after.State) && before.ActiveRun == after.ActiveRun && before.Epoch == after.Epoch &&
		before.Content == after.Content && before.Submission == after.Submission &&
		slices.Equal(s.Before.Run.OutstandingCalls, s.After.Run.OutstandingCalls)
}

// hasOneReceipt reports whether the change has one receipt, of its run.
func (s *chainedChange) hasOneReceipt() bool {
	return len(s.receipts) == 1 && s.receipts[0].Run == s.After.Run.ID && s.After.Case.Kind != KindOperations
}

// immutableState returns the part of a settlement that hotTransitionSQL does not write.
func immutableState(s *settlement.State) settlement.State {
	return settlement.State{Adjudication: s.Adjudication, Generation: s.Generation, Asked: s.Asked}
}

// addHotTransitions adds transitions to c, and the sessions that claim to sessions.
func addHotTransitions(c, sessions *pg.BinaryColumns, rows []*chainedChange) {
	var last background.SessionID
	for _, ch := range rows {
		addHotTransition(c, ch)
		if claim := ch.After.Run.Session; ch.isClaim() && claim != last {
			last = claim
			sessions.ID(claim)
		}
	}
}

func addHotTransition(c *pg.BinaryColumns, ch *chainedChange) {
	k, s, r := &ch.After.Case, &ch.After.Case.State, &ch.receipts[0]
	c.Bytes(r.Body)
	c.ID(k.ID)
	c.Int8(ch.Before.Case.Head.Seq)
	c.Bytes(ch.Before.Case.Head.Link[:])
	c.Bytes(ch.head.Link[:])
	c.Str(string(s.Progression))
	c.Str(string(s.ReasonCode))
	c.Str(s.Reason)
	c.Str(string(s.Lifecycle))
	c.Int8(s.Moved)
	c.Int8(s.Reserved)
	c.Int8(s.Released)
	c.Int8(s.Refunded)
	c.Int4(ch.After.Run.UnresolvedUnknowns)
	c.Time(ch.After.Run.FirstSentAt)
	addHotRun(c, &ch.Before.Run, &ch.After.Run)
	c.Str(string(r.Source))
	c.Str(string(r.Subtype))
	c.Str(r.Actor)
	c.Time(r.At)
}

func addHotRun(c *pg.BinaryColumns, before, after *background.Run) {
	c.ID(after.ID)
	c.Str(string(before.State))
	c.Int4(before.Attempt)
	c.ID(before.Token)
	c.Bool(before.CancelRequested)
	c.Str(string(after.State))
	c.Str(string(after.Letter))
	c.Int4(after.Attempt)
	c.Int4(after.BudgetSpent)
	c.Int4(after.Recoveries)
	c.Str(string(after.Class))
	c.ID(after.Token)
	c.ID(after.Session)
	c.ID(after.LastTransition)
	c.Time(after.DueAt)
	c.Time(after.DeadAt)
	c.Str(after.Reason)
	f := after.Failure
	if f == nil {
		f = &background.Failure{}
	}
	c.Str(f.Type)
	c.Str(f.Code)
	c.Str(f.Message)
}

// applyHotTransitions executes hotTransitionSQL and returns the result of each row.
func (j *Journal) applyHotTransitions(ctx context.Context, rows []*chainedChange) ([]result, error) {
	out := make([]result, len(rows))
	c, sessions := hotTransitionColumns.Get(), claimSessionColumns.Get()
	addHotTransitions(c, sessions, rows)
	hitTransitionPoints(failpoint.JournalBefore, rows)
	err := scanRowNumbers(ctx, j.hotTransitionStmt, len(rows), append(sessions.Args(), c.Args()...), func(n int, _ int64) { out[n-1] = applied })
	hotTransitionColumns.Put(c)
	claimSessionColumns.Put(sessions)
	if err != nil {
		return nil, err
	}
	hitTransitionPoints(failpoint.JournalAfter, rows)
	return out, nil
}

// scanRowNumbers executes a statement that returns the numbers, from 1, of the rows it
// wrote, with one value for each.
func scanRowNumbers(ctx context.Context, q pg.Querier, rows int, args []any, each func(n int, value int64)) error {
	res, err := q.QueryContext(ctx, "", args...)
	if err != nil {
		return err
	}
	defer res.Close()
	for res.Next() {
		var n int
		var value int64
		if err := res.Scan(&n, &value); err != nil {
			return err
		}
		if n < 1 || n > rows {
			return fmt.Errorf("postgres: unexpected answer for row %d of %d", n, rows)
		}
		each(n, value)
	}
	return res.Err()
}
