package journal

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lib/pq/oid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// wideTransitionSQL writes transitions of existing cases: the case, its runs, a new run, the
// receipts, and the committed sum of the escrow, all or nothing per case.
//
// The guards are in locked_cases and locked_runs, which read the newest rows. The statement locks cases, then runs,
// then escrows, each by id. ok has the cases that are as they were read. The only further condition is room in
// the escrow for a reservation. It is decided in fit, on the locked row. After fit nothing can fail for a single
// row, and all parts that follow write. A reservation that would fit alone, but not after earlier rows of the
// batch, is not returned, just as a row whose guard failed. Only a reservation locks the escrow, and folds its
// deltas. Every other change of the committed sum is inserted as a delta.
//
// A claim also needs a session that is not lost. The session is locked (alive) when Postgres checks the guard of its
// run, which is after the case is locked, so that it is not removed before the claim is committed. It may be marked lost meanwhile: a lost session is searched until nothing runs under it.
// A claim is not written if a circuit breaker blocks the run, in the snapshot of the statement.
//
// The server estimates that each part has a row or few, and would join two parts by comparing each row of one with
// each of the other. So locked_cases carries the rows as given, ok searches a hash of the runs, and room adds up one
// list of the escrows and of their deltas.
//
// With SKIP LOCKED the statement waits for no row. Without it, a row that is written alone waits for its locks.
//
// The parameters are those of cases, runs, new runs and receipts, one after the other, and then the classes of
// the new runs. It returns the ids of cases with their results: applied or exceeds_held. A case that is not
// returned is a conflict.
var wideTransitionSQL = `
WITH given AS MATERIALIZED (
  SELECT * FROM unnest(` + caseParameters.arrays(1) + `) WITH ORDINALITY AS t(` + caseParameters.names() + `,n)
), given_runs AS MATERIALIZED (
  SELECT * FROM unnest(` + runParameters.arrays(changedRunsAt) + `) AS t(` + runParameters.names() + `)
), alive AS MATERIALIZED (
  SELECT s.id FROM recourse.sessions s WHERE s.id IN (SELECT session FROM given_runs WHERE new_state = 'running' AND state <> 'running') AND NOT s.lost FOR KEY SHARE OF s /*skip*/
), open_breakers AS MATERIALIZED (
  SELECT k.* FROM recourse.circuit_breakers k WHERE k.state <> 'closed'
), claimed AS MATERIALIZED (
  SELECT r.id, r.tenant, r.family, r.target, r.due_at FROM given_runs u JOIN recourse.runs r ON r.id = u.run WHERE u.new_state = 'running' AND u.state <> 'running' AND EXISTS (SELECT FROM open_breakers)
), blocked AS MATERIALIZED (
  SELECT r.id FROM claimed r JOIN open_breakers k ON ` + blocksClaimSQL + `
), locked_cases AS MATERIALIZED (
  SELECT c.id, b.* FROM recourse.cases c JOIN given b ON b.case_id = c.id
  WHERE c.last_seq = b.seq AND c.last_link = b.link
  ORDER BY c.id FOR NO KEY UPDATE OF c /*skip*/
), locked_runs AS MATERIALIZED (
  SELECT r.id, r.case_id FROM given_runs u JOIN locked_cases k ON k.id = u.case_id JOIN recourse.runs r ON r.id = u.run
  WHERE r.state = u.state AND r.attempt_count = u.attempt AND r.token IS NOT DISTINCT FROM u.token AND r.cancel_requested = u.cancel_seen
    AND (u.new_state <> 'running' OR u.state = 'running' OR u.session IN (SELECT id FROM alive) AND u.run NOT IN (SELECT id FROM blocked))
  ORDER BY r.id FOR NO KEY UPDATE OF r /*skip*/
), ok AS MATERIALIZED (
  SELECT k.* FROM locked_cases k WHERE k.runs = 0 OR (k.case_id, k.runs) IN (SELECT case_id, count(*)::int FROM locked_runs GROUP BY 1)
), locked_escrows AS MATERIALIZED (
  SELECT e.id, e.held, e.committed FROM recourse.escrows e
  WHERE e.id IN (SELECT escrow_id FROM ok WHERE reserve AND delta > 0) ORDER BY e.id FOR NO KEY UPDATE OF e /*skip*/
), fold AS (
  DELETE FROM recourse.escrow_deltas x USING locked_escrows e WHERE x.escrow_id = e.id RETURNING x.escrow_id, x.delta
), room AS MATERIALIZED (
  SELECT id, sum(free) AS free FROM (SELECT id, held - committed AS free FROM locked_escrows UNION ALL SELECT escrow_id, -delta FROM fold) e GROUP BY id
), fit AS MATERIALIZED (
  SELECT ok.*, CASE WHEN NOT (ok.reserve AND ok.delta > 0) THEN true WHEN ok.delta > room.free THEN false
      WHEN sum(CASE WHEN ok.reserve AND ok.delta BETWEEN 1 AND room.free THEN ok.delta ELSE 0 END) OVER (PARTITION BY ok.escrow_id ORDER BY ok.n) <= room.free THEN true END AS fits
  FROM ok LEFT JOIN room ON room.id = ok.escrow_id WHERE NOT (ok.reserve AND ok.delta > 0) OR room.id IS NOT NULL
), case_write AS (
  UPDATE recourse.cases c SET last_seq = f.new_seq, last_link = f.new_link, ` + settlementParameters.assignments("f") + `,
    ` + decisionParameters.assignments("f") + `
  FROM fit f WHERE c.id = f.case_id AND f.fits RETURNING c.id
), run_write AS (
  UPDATE recourse.runs r SET state = u.new_state, live = u.new_state IN ('pending','running','scheduled'), active = u.new_state IN ('pending','running','scheduled') OR u.letter = 'open',
    token = u.new_token, session_id = u.session, reason = u.why, outstanding_calls = u.outstanding_calls::int[], handed_back = u.handed_back, output = coalesce(u.output, r.output), ` + progressParameters.assignments("u") + `
  FROM given_runs u JOIN case_write c ON c.id = u.case_id WHERE r.id = u.run RETURNING r.id
), lease_end AS (
  DELETE FROM recourse.leases l USING given_runs u JOIN case_write c ON c.id = u.case_id WHERE l.run_id = u.run AND u.state = 'running' AND u.new_state <> 'running'
), new_run AS (
  INSERT INTO recourse.runs (` + newRunColumns + `,class)
  SELECT t.id,t.case_id,t.tenant,t.family,t.retry_key,t.operation_key,t.queue,t.target,t.policy,t.payload,t.parent_id,'pending',true,true,t.due_at,t.remote,t.priority,t.expires_at,t.last_transition,t.class
  FROM unnest(` + newRunParameters.arrays(newRunsAt) + fmt.Sprintf(`,$%d::text[])`, receiptsAt+len(receiptParameters)) + ` AS t(` + newRunParameters.names() + `,class)
  JOIN case_write c ON c.id = t.case_id WHERE (SELECT count(*) FROM run_write) >= 0 -- after run_write: a case has one active run
), operation AS (
  INSERT INTO recourse.operations (key, case_id, request)
  SELECT t.key, t.case_id, t.request FROM unnest(` + newRunParameters.array("operation_key", newRunsAt) + `,` + newRunParameters.array("case_id", newRunsAt) + `,` + newRunParameters.array("request", newRunsAt) + `) AS t(key,case_id,request)
  JOIN case_write c ON c.id = t.case_id WHERE t.key IS NOT NULL ON CONFLICT DO NOTHING
), escrow_write AS (
  UPDATE recourse.escrows e SET committed = e.committed + s.delta, breached = greatest(e.breached, e.committed + s.delta - e.held)
  FROM (SELECT escrow_id, sum(delta)::bigint AS delta FROM (
      SELECT escrow_id, delta FROM fold UNION ALL SELECT f.escrow_id, f.delta FROM fit f WHERE f.fits AND f.reserve AND f.delta > 0) d GROUP BY 1) s
  WHERE e.id = s.escrow_id
), delta AS (
  INSERT INTO recourse.escrow_deltas (escrow_id, case_id, seq, delta)
  SELECT f.escrow_id, f.case_id, f.seq + 1, f.delta FROM fit f WHERE f.delta <> 0 AND NOT (f.reserve AND f.delta > 0)
), receipt AS (
  INSERT INTO recourse.receipts (` + receiptColumns + `)
  SELECT t.* FROM unnest(` + receiptParameters.arrays(receiptsAt) + `) AS t(` + receiptColumns + `) JOIN case_write c ON c.id = t.case_id
  RETURNING case_id, seq, tenant
), outbox AS (
` + outboxSQL + `
)
SELECT id, 'applied' FROM case_write UNION ALL SELECT case_id, 'exceeds_held' FROM fit WHERE NOT fits`

// The two forms of a statement: withSkipLocked never waits for another transaction, for
// batches and callers' transactions; withLockWait waits, for the slow paths.
func withSkipLocked(text string) string { return strings.ReplaceAll(text, "/*skip*/", "SKIP LOCKED") }

func withLockWait(text string) string { return strings.ReplaceAll(text, "/*skip*/", "") }

// caseParameters and runParameters are the parameters of wideTransitionSQL, as addCase and
// addRun write them. No column has the number of runs, how much the change adds to the committed sum, and
// whether that is a reservation.
var (
	caseParameters = slices.Concat(
		casesTable.of("id AS case_id", "last_seq AS seq", "last_link AS link"), parameters{{"runs", oid.T_int4}}, casesTable.of("last_seq AS new_seq", "last_link AS new_link",
			"progression", "reason_code", "reason", "lifecycle", "adjudication", "generation", "asked", "moved", "reserved", "released", "refunded",
			"run_id", "unknown_open", "epoch", "first_sent_at", "content", "submission", "escrow_id"),
		parameters{{"delta", oid.T_int8}, {"reserve", oid.T_bool}},
	)
	runParameters = runsTable.of("id AS run", "case_id", "state", "attempt_count AS attempt", "token", "cancel_requested AS cancel_seen",
		"state AS new_state", "letter", "attempt_count", "budget_spent", "recoveries", "class", "token AS new_token", "last_transition", "due_at", "dead_at",
		"reason AS why", "error_type", "error_code", "error_text", "session_id AS session", "outstanding_calls", "handed_back", "output")
)

// The numbers of the first parameters of the parts of wideTransitionSQL: of the runs, the new runs
// and the receipts.
var (
	changedRunsAt = 1 + len(caseParameters)
	newRunsAt     = changedRunsAt + len(runParameters)
	receiptsAt    = newRunsAt + len(newRunParameters)
)

func wideTransitionArgs(changes []*chainedChange) []any {
	n := len(changes)
	cases, runs, newRuns, trail := pg.NewTextColumns(len(caseParameters), n), pg.NewTextColumns(len(runParameters), n), pg.NewTextColumns(len(newRunParameters), 0), pg.NewTextColumns(len(receiptParameters), n)
	classes := pg.NewTextColumns(1, 0)
	for i := range changes {
		ch := changes[i]
		addCase(cases, ch)
		if ch.After.Case.Kind != KindOperations {
			addRun(runs, &ch.Before.Run, &ch.After.Run)
		}
		for _, other := range ch.Others {
			addRun(runs, &other.Before, &other.After)
		}
		if ch.NewRun != nil {
			addNewRun(newRuns, *ch.NewRun)
			classes.Str(string(ch.NewRun.Class))
		}
		addReceipts(trail, ch.receipts)
	}
	args := append(cases.Args(), runs.Args()...)
	return append(append(append(args, newRuns.Args()...), trail.Args()...), classes.Args()...)
}

func addCase(c *pg.TextColumns, ch *chainedChange) {
	before, after := &ch.Before.Case, &ch.After.Case
	acting := &ch.After.Run // the run whose unknown calls and first call the case shows: the new one, if any
	if ch.NewRun != nil {
		acting = ch.NewRun
	}
	c.ID(after.ID)
	c.Int(before.Head.Seq)
	c.Bytes(before.Head.Link[:])
	c.Int(int64(ch.runCount()))
	c.Int(ch.head.Seq)
	c.Bytes(ch.head.Link[:])
	s := after.State
	c.Str(string(s.Progression))
	c.Str(string(s.ReasonCode))
	c.Str(s.Reason)
	c.Str(string(s.Lifecycle))
	c.Str(string(s.Outcome))
	c.Int(int64(s.Generation))
	c.Int(s.Asked)
	c.Int(s.Moved)
	c.Int(s.Reserved)
	c.Int(s.Released)
	c.Int(s.Refunded)
	c.ID(after.ActiveRun)
	c.Int(int64(acting.UnknownOpen))
	c.Int(int64(after.Epoch))
	c.Time(acting.FirstSentAt)
	c.Bytes(after.Content[:])
	c.Str(after.Submission)
	if after.Escrow == 0 {
		c.Null()
	} else {
		c.Int(after.Escrow)
	}
	c.Int(ch.committedDelta())
	c.Bool(ch.Reserve)
}

func addRun(c *pg.TextColumns, before, after *background.Run) {
	c.ID(after.ID)
	c.ID(after.Case)
	c.Str(string(before.State))
	c.Int(int64(before.Attempt))
	c.ID(before.Token)
	c.Bool(before.CancelRequested)
	c.Str(string(after.State))
	c.Str(string(after.Letter))
	c.Int(int64(after.Attempt))
	c.Int(int64(after.BudgetSpent))
	c.Int(int64(after.Recoveries))
	c.Str(string(after.Class))
	c.ID(after.Token)
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
	c.ID(after.Session)
	c.Ints(after.OutstandingCalls)
	c.Int(int64(after.HandedBack))
	if after.Output == nil {
		c.Null()
	} else {
		c.Bytes(after.Output)
	}
}

// applyWideTransitions executes one transition statement and returns the result of each row.
func applyWideTransitions(ctx context.Context, q pg.Querier, text string, changes []*chainedChange) ([]result, error) {
	index := make(map[receipts.CaseID]int, len(changes))
	for i := range changes {
		index[changes[i].After.Case.ID] = i
	}
	out := make([]result, len(changes))
	hitTransitionPoints(failpoint.JournalBefore, changes)
	rows, err := q.QueryContext(ctx, text, wideTransitionArgs(changes)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id []byte
		var res result
		if err := rows.Scan(&id, &res); err != nil {
			return nil, err
		}
		caseID, err := receipts.ParseCaseID(string(id))
		if err != nil {
			return nil, err
		}
		i, known := index[caseID]
		if !known {
			return nil, fmt.Errorf("unexpected result of case %s", caseID)
		}
		out[i] = res
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	hitTransitionPoints(failpoint.JournalAfter, changes)
	return out, nil
}

// applyWideTransition is applyWideTransitions of one change.
func applyWideTransition(ctx context.Context, q pg.Querier, text string, ch *chainedChange) (result, error) {
	results, err := applyWideTransitions(ctx, q, text, []*chainedChange{ch})
	if err != nil {
		return conflict, err
	}
	return results[0], nil
}

// hitTransitionPoints hits the failpoints of transitions: each receipt of a change names
// one.
func hitTransitionPoints(m failpoint.Moment, changes []*chainedChange) {
	for i := range changes {
		for j := range changes[i].Drafts {
			failpoint.Hit(m, string(changes[i].Drafts[j].Subtype))
		}
	}
}

// narrowTransitionSQL writes the most frequent kind of transition: of one run of one case,
// with one receipt and no reservation.
//
// It writes no claim while any circuit breaker is open: wideTransitionSQL decides which runs
// are blocked, and a claim that is not written here is tried there.
//
// $1 sessions that claim · $2.. transitions, one row each; the widest column first, so
// that the driver's buffer grows least often
// returns the numbers of the rows that were written
var narrowTransitionSQL = `
WITH alive AS MATERIALIZED (
  SELECT s.id FROM recourse.sessions s WHERE s.id = ANY($1::uuid[]) AND NOT s.lost FOR KEY SHARE OF s SKIP LOCKED
), ` + narrowTransition{
	parameters: narrowTransitionParameters, first: 2,
	guard: `b.new_state <> 'running' OR b.state = 'running' OR b.session IN (SELECT id FROM alive) AND NOT EXISTS (SELECT FROM recourse.circuit_breakers k WHERE k.state <> 'closed')`,
}.sql()

// narrowTransition makes the statements that write transitions of one run of one case each, with
// one receipt and no reservation. What a transition adds to or frees from the escrow, computed
// from the sums of the case before and after, is inserted as a delta. All guards are in ok,
// which locks the newest case and run of each row and never waits; after it nothing can
// fail for a single row. The statements return the number of each row that was written, and its seq, which nobody
// reads: scanRowNumbers reads two columns, because narrowOpenSQL has a value in the second.
type narrowTransition struct {
	parameters parameters // beginning with narrowTransitionParameters
	first      int        // the number of the first one
	guard      string     // on b, the row as given, and r, the run; beside those of every transition
	runs       string     // further assignments to the run, each after a comma
	more       string     // further writes, each a CTE after a comma
}

func (n narrowTransition) sql() string {
	return `ok AS MATERIALIZED (
  SELECT b.*, c.tenant, c.escrow_id, b.reserved + b.released + b.refunded - c.reserved - c.released - c.refunded AS delta
  FROM unnest(` + n.parameters.arrays(n.first) + `) WITH ORDINALITY AS b(` + n.parameters.names() + `,n)
  JOIN recourse.cases c ON c.id = b.case_id
  JOIN recourse.runs r ON r.id = b.run
  WHERE c.last_seq = b.seq AND c.last_link = b.link AND r.case_id = b.case_id
    AND r.state = b.state AND r.attempt_count = b.attempt AND r.token IS NOT DISTINCT FROM b.token AND r.cancel_requested = b.cancel_seen
    AND (` + n.guard + `)
  ORDER BY c.id FOR NO KEY UPDATE OF c, r SKIP LOCKED
), case_write AS (
  UPDATE recourse.cases c SET last_seq = b.seq + 1, last_link = b.new_link, ` + settlementParameters.assignments("b") + `
  FROM ok b WHERE c.id = b.case_id
), run_write AS (
  UPDATE recourse.runs r SET state = b.new_state, live = b.new_state IN ('pending','running','scheduled'), active = b.new_state IN ('pending','running','scheduled') OR b.letter = 'open',
    token = b.new_token, session_id = b.session, reason = b.why, ` + progressParameters.assignments("b") + n.runs + `
  FROM ok b WHERE r.id = b.run
), receipt AS (
  INSERT INTO recourse.receipts (` + receiptColumns + `)
  SELECT case_id, seq + 1, run, tenant, source, subtype, actor, at, body, new_link FROM ok
), outbox AS (
  INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT tenant, array_agg(case_id), array_agg(seq + 1) FROM ok GROUP BY tenant
), delta AS (
  INSERT INTO recourse.escrow_deltas (escrow_id, case_id, seq, delta) SELECT escrow_id, case_id, seq + 1, delta FROM ok WHERE delta <> 0
)` + n.more + `
SELECT n, seq FROM ok`
}

// narrowTransitionParameters are the parameters of one transition, as addNarrowTransition writes them. They begin
// with $2 in narrowTransitionSQL, and with $1 in the statements of leases.
var narrowTransitionParameters = slices.Concat(
	receiptsTable.of("body"),
	casesTable.of("id AS case_id", "last_seq AS seq", "last_link AS link", "last_link AS new_link"), settlementParameters,
	runsTable.of("id AS run", "state", "attempt_count AS attempt", "token", "cancel_requested AS cancel_seen",
		"state AS new_state", "letter", "attempt_count", "budget_spent", "recoveries", "class", "token AS new_token", "session_id AS session",
		"last_transition", "due_at", "dead_at", "reason AS why", "error_type", "error_code", "error_text"),
	receiptsTable.of("source", "subtype", "actor", "at"),
)

// claimSessionColumns and narrowTransitionColumns are the parameters of narrowTransitionSQL as
// they are sent.
var (
	claimSessionColumns     = pg.NewBinaryLayout(oid.T_uuid)
	narrowTransitionColumns = narrowTransitionParameters.layout()
)

// fitsNarrowTransition reports whether narrowTransitionSQL can write a change: it changes one run
// and its case, and nothing that only a submission, a fork, or a change of outstanding
// calls changes.
func (ch *chainedChange) fitsNarrowTransition() bool {
	before, after := &ch.Before.Case, &ch.After.Case
	return ch.hasOneReceipt() && len(ch.Others) == 0 && ch.NewRun == nil && !ch.Reserve &&
		decisionState(&before.State) == decisionState(&after.State) && before.ActiveRun == after.ActiveRun && before.Epoch == after.Epoch &&
		before.Content == after.Content && before.Submission == after.Submission &&
		slices.Equal(ch.Before.Run.OutstandingCalls, ch.After.Run.OutstandingCalls)
}

// decisionState returns the part of a settlement that narrowTransitionSQL does not write.
func decisionState(s *settlement.State) settlement.State {
	return settlement.State{Outcome: s.Outcome, Generation: s.Generation, Asked: s.Asked}
}

// addNarrowTransitions adds transitions to c, and the sessions that claim to sessions.
func addNarrowTransitions(c, sessions *pg.BinaryColumns, changes []*chainedChange) {
	var last background.SessionID
	for _, ch := range changes {
		addNarrowTransition(c, ch)
		if claim := ch.After.Run.Session; ch.isClaim() && claim != last {
			last = claim
			sessions.ID(claim)
		}
	}
}

func addNarrowTransition(c *pg.BinaryColumns, ch *chainedChange) {
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
	c.Int4(ch.After.Run.UnknownOpen)
	c.Time(ch.After.Run.FirstSentAt)
	addNarrowRun(c, &ch.Before.Run, &ch.After.Run)
	c.Str(string(r.Source))
	c.Str(string(r.Subtype))
	c.Str(r.Actor)
	c.Time(r.At)
}

func addNarrowRun(c *pg.BinaryColumns, before, after *background.Run) {
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

// applyNarrowTransitions executes narrowTransitionSQL and returns the result of each row.
func (j *Journal) applyNarrowTransitions(ctx context.Context, changes []*chainedChange) ([]result, error) {
	out := make([]result, len(changes))
	c, sessions := narrowTransitionColumns.Get(), claimSessionColumns.Get()
	addNarrowTransitions(c, sessions, changes)
	hitTransitionPoints(failpoint.JournalBefore, changes)
	err := scanRowNumbers(ctx, j.narrowTransitionStmt, len(changes), append(sessions.Args(), c.Args()...), func(n int, _ int64) { out[n-1] = applied })
	narrowTransitionColumns.Put(c)
	claimSessionColumns.Put(sessions)
	if err != nil {
		return nil, err
	}
	hitTransitionPoints(failpoint.JournalAfter, changes)
	return out, nil
}

// flushTransitions writes a batch of transitions. A batch that the server refuses for the values
// of one row is split, so that only that row fails.
func (j *Journal) flushTransitions(changes []*chainedChange) []pg.Outcome[result] {
	ctx, cancel := context.WithTimeout(context.Background(), pg.StatementTimeout)
	defer cancel()
	defer j.SignalCommitted()
	return narrowThenWide(changes, (*chainedChange).fitsNarrowTransition,
		func(changes []*chainedChange) ([]result, error) { return j.applyNarrowTransitions(ctx, changes) },
		func(ch *chainedChange, res result) bool { return res == conflict && ch.isClaim() },
		func(changes []*chainedChange) ([]result, error) {
			return applyWideTransitions(ctx, j.wideTransitionStmt, "", changes) // a Statement ignores the text
		})
}
