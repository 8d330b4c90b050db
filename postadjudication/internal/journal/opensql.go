package journal

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// wideOpenSQL writes new cases, each with its first run, its reservation and its receipt.
// Whoever creates a case holds the advisory lock of its subject, so that no INSERT ever
// waits for the uncommitted INSERT of another transaction. A case whose lock is taken is a
// conflict.
//
// Whoever locks an escrow folds its deltas, and counts only what its own DELETE returned. It adds up one list of
// the escrows and of their deltas: to search the deltas for each escrow would read all of them each time.
// Rows take room in the escrow in their order: a row that does not fit by itself is
// exceeds_held, and one that does not fit after the others deferred, to be tried again.
//
// The parameters are those of cases, of new runs and of receipts, one after the other. It returns the number
// of each row, its result, and the id of its escrow or 0. Here /*lock*/ and /*skip*/ stand for the locks, which
// withTryLock and withSubjectLock put in.
var wideOpenSQL = `
WITH given AS MATERIALIZED (
  SELECT b.*, ` + subjectLockSQL + ` AS lock FROM unnest(` + wideOpenParameters.arrays(1) + `) WITH ORDINALITY
  AS b(` + wideOpenParameters.names() + `,n)
), locked_subjects AS MATERIALIZED (
  SELECT b.*, /*lock*/ AS locked FROM given b
), existing AS MATERIALIZED (
  SELECT m.n FROM locked_subjects m JOIN recourse.cases c ON c.tenant = m.tenant AND c.kind = m.kind AND c.subject = m.subject WHERE m.locked
), locked_escrows AS MATERIALIZED (
  SELECT e.* FROM recourse.escrows e
  WHERE (e.tenant, e.reference) IN (SELECT tenant, reference FROM locked_subjects WHERE locked AND reference <> '' AND n NOT IN (SELECT n FROM existing))
  ORDER BY e.id FOR NO KEY UPDATE OF e /*skip*/
), fold AS (
  DELETE FROM recourse.escrow_deltas x USING locked_escrows e WHERE x.escrow_id = e.id RETURNING x.escrow_id, x.delta
), folded_escrows AS MATERIALIZED (
  SELECT id, max(tenant) AS tenant, max(reference) AS reference, max(currency) AS currency, max(held) AS held, sum(free) AS free FROM (
    SELECT id, tenant, reference, currency, held, held - committed AS free FROM locked_escrows UNION ALL SELECT escrow_id, NULL, NULL, NULL, NULL, -delta FROM fold) e GROUP BY id
), room AS MATERIALIZED (
  SELECT m.*, e.id AS escrow_id, e.free,
    CASE WHEN NOT m.locked THEN 'conflict'
      WHEN s.n IS NOT NULL THEN 'case_exists'
      WHEN m.reference = '' THEN 'applied'
      WHEN e.id IS NULL THEN 'conflict'
      WHEN e.held <> m.held OR e.currency <> m.currency THEN 'escrow_mismatch'
      ELSE 'applied' END AS guarded
  FROM locked_subjects m LEFT JOIN existing s ON s.n = m.n LEFT JOIN folded_escrows e ON e.tenant = m.tenant AND e.reference = m.reference
), fit AS MATERIALIZED (
  SELECT d.*, CASE WHEN d.guarded <> 'applied' OR d.escrow_id IS NULL THEN d.guarded
      WHEN d.amount > d.free THEN 'exceeds_held'
      WHEN sum(CASE WHEN d.guarded = 'applied' AND d.amount <= d.free THEN d.amount ELSE 0 END) OVER (PARTITION BY d.escrow_id ORDER BY d.n) > d.free THEN 'deferred'
      ELSE d.guarded END AS result FROM room d
), new_case AS (
  INSERT INTO recourse.cases AS c (` + newCaseColumns + `)
  SELECT case_id,tenant,kind,subject,escrow_id,submission,content,progression,reason_code,reason,lifecycle,adjudication,
    generation,amount,amount,run_id,1,link
  FROM fit WHERE result = 'applied' ON CONFLICT DO NOTHING RETURNING c.id
), new_run AS (
  INSERT INTO recourse.runs (` + newRunColumns + `)
  SELECT t.id,t.case_id,t.tenant,t.family,t.retry_key,t.operation_key,t.queue,t.target,t.policy,t.payload,t.parent_id,'pending',true,true,t.due_at,t.remote,t.priority,t.expires_at,t.last_transition
  FROM unnest(` + newRunParameters.arrays(openedRunsAt) + `) AS t(` + newRunParameters.names() + `)
  JOIN new_case c ON c.id = t.case_id
), operation AS (
  INSERT INTO recourse.operations (key, case_id, request)
  SELECT t.key, t.case_id, t.request FROM unnest(` + newRunParameters.array("operation_key", openedRunsAt) + `,` + newRunParameters.array("case_id", openedRunsAt) + `,` + newRunParameters.array("request", openedRunsAt) + `) AS t(key,case_id,request)
  JOIN new_case c ON c.id = t.case_id WHERE t.key IS NOT NULL ON CONFLICT DO NOTHING
), escrow_write AS (
  UPDATE recourse.escrows e SET committed = e.committed + s.delta, breached = greatest(e.breached, e.committed + s.delta - e.held)
  FROM (SELECT escrow_id, sum(delta)::bigint AS delta FROM (
      SELECT escrow_id, delta FROM fold UNION ALL SELECT f.escrow_id, f.amount FROM fit f JOIN new_case c ON c.id = f.case_id WHERE f.escrow_id IS NOT NULL) d GROUP BY 1) s
  WHERE e.id = s.escrow_id
), receipt AS (
  INSERT INTO recourse.receipts (` + receiptColumns + `)
  SELECT t.* FROM unnest(` + receiptParameters.arrays(openedRunsAt+len(newRunParameters)) + `) AS t(` + receiptColumns + `) JOIN new_case c ON c.id = t.case_id
  RETURNING case_id, seq, tenant
), outbox AS (
` + outboxSQL + `
)
SELECT f.n, CASE WHEN f.result = 'applied' AND c.id IS NULL THEN 'case_exists' ELSE f.result END, coalesce(f.escrow_id, 0)
FROM fit f LEFT JOIN new_case c ON c.id = f.case_id ORDER BY f.n`

// wideOpenParameters are the parameters of the cases of wideOpenSQL, as wideOpenArgs writes them.
var wideOpenParameters = slices.Concat(
	casesTable.of("id AS case_id", "tenant", "kind", "subject"), escrowsTable.of("reference", "currency", "held"),
	casesTable.of("submission", "content", "progression", "reason_code", "reason", "lifecycle", "adjudication", "generation", "asked AS amount", "run_id", "last_link AS link"),
)

// openedRunsAt is the number of the first parameter of the new runs of wideOpenSQL.
var openedRunsAt = 1 + len(wideOpenParameters)

// newCaseColumns are the columns of a new case that have no default.
const newCaseColumns = `id,tenant,kind,subject,escrow_id,submission,content,progression,reason_code,reason,lifecycle,adjudication,
    generation,asked,reserved,run_id,last_seq,last_link`

// subjectLockSQL is the key of the advisory lock of a subject. Whoever creates a case holds
// it.
const subjectLockSQL = `hashtextextended(b.tenant || chr(31) || b.kind || chr(31) || b.subject, 7)`

func wideOpenArgs(changes []*chainedChange) []any {
	n := len(changes)
	cases, runs, trail := pg.NewTextColumns(len(wideOpenParameters), n), pg.NewTextColumns(len(newRunParameters), n), pg.NewTextColumns(len(receiptParameters), n)
	for i := range changes {
		ch := changes[i]
		k := ch.After.Case
		cases.ID(k.ID)
		cases.Str(k.Tenant)
		cases.Str(string(k.Kind))
		cases.Str(k.Subject)
		cases.Str(ch.OpeningEscrow.Reference)
		cases.Str(ch.OpeningEscrow.Currency)
		cases.Int(ch.OpeningEscrow.Held)
		cases.Str(k.Submission)
		cases.Bytes(k.Content[:])
		cases.Str(string(k.State.Progression))
		cases.Str(string(k.State.ReasonCode))
		cases.Str(k.State.Reason)
		cases.Str(string(k.State.Lifecycle))
		cases.Str(string(k.State.Outcome))
		cases.Int(int64(k.State.Generation))
		cases.Int(k.State.Asked)
		cases.ID(ch.After.Run.ID)
		cases.Bytes(ch.head.Link[:])
		if k.Kind != KindOperations {
			addNewRun(runs, ch.After.Run)
		}
		addReceipts(trail, ch.receipts)
	}
	args := append(cases.Args(), runs.Args()...)
	return append(args, trail.Args()...)
}

// openResult is the result of opening one case.
type openResult struct {
	result result
	escrow int64
}

// applyWideOpens executes one open statement and returns the result of each row.
func applyWideOpens(ctx context.Context, q pg.Querier, text string, changes []*chainedChange) ([]openResult, error) {
	out := make([]openResult, len(changes))
	hitOpenPoints(failpoint.JournalBefore, changes)
	rows, err := q.QueryContext(ctx, text, wideOpenArgs(changes)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		var opened openResult
		if err := rows.Scan(&n, &opened.result, &opened.escrow); err != nil {
			return nil, err
		}
		if n < 1 || n > len(out) {
			return nil, fmt.Errorf("unexpected result of row %d of %d", n, len(out))
		}
		out[n-1] = opened
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	hitOpenPoints(failpoint.JournalAfter, changes)
	return out, nil
}

// applyWideOpen is applyWideOpens of one change.
func applyWideOpen(ctx context.Context, q pg.Querier, text string, ch *chainedChange) (openResult, error) {
	results, err := applyWideOpens(ctx, q, text, []*chainedChange{ch})
	if err != nil {
		return openResult{}, err
	}
	return results[0], nil
}

// The two forms of wideOpenSQL, as of wideTransitionSQL: withTryLock never waits for a lock,
// withSubjectLock waits.
func withTryLock(text string) string {
	return strings.ReplaceAll(withSkipLocked(text), "/*lock*/", "pg_try_advisory_xact_lock(b.lock)")
}
func withSubjectLock(text string) string {
	return strings.ReplaceAll(withLockWait(text), "/*lock*/", "(pg_advisory_xact_lock(b.lock)::text = '')")
}

// narrowOpenSQL writes the most frequent kind of new case: with a new subject, no escrow or a new one, one run
// and one receipt. It skips rows whose subject or escrow it finds, and those whose subject is locked;
// wideOpenSQL decides these. It can't see what was committed after its snapshot. If a row collides with that,
// a constraint refuses the whole batch, and wideOpenSQL decides all of its rows.
//
// Like wideOpenSQL it holds the advisory lock of each subject, so that no two processes
// open one case. The id of an escrow is drawn first, so that its row is written once,
// including the reservation.
//
// The parameters are those of a case with its escrow, run, request and receipt. It returns the numbers of the
// rows that were written, each with the id of its escrow or 0.
var narrowOpenSQL = `
WITH ok AS MATERIALIZED (
  SELECT b.*, CASE WHEN b.reference = '' THEN NULL ELSE nextval('recourse.escrows_id_seq') END AS escrow_id
  FROM unnest(` + narrowOpenParameters.arrays(1) + `) WITH ORDINALITY AS b(` + narrowOpenParameters.names() + `,n)
  WHERE pg_try_advisory_xact_lock(` + subjectLockSQL + `)
    AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.tenant = b.tenant AND c.kind = b.kind AND c.subject = b.subject)
    AND NOT EXISTS (SELECT FROM recourse.escrows e WHERE e.tenant = b.tenant AND e.reference = b.reference)
), new_escrow AS (
  INSERT INTO recourse.escrows (id,tenant,reference,currency,held,committed) OVERRIDING SYSTEM VALUE
  SELECT escrow_id,tenant,reference,currency,held,amount FROM ok WHERE reference <> '' ORDER BY tenant, reference
), new_case AS (
  INSERT INTO recourse.cases (` + newCaseColumns + `)
  SELECT case_id,tenant,kind,subject,escrow_id,submission,content,progression,reason_code,reason,lifecycle,adjudication,
    generation,amount,amount,run,1,link FROM ok
), new_run AS (
  INSERT INTO recourse.runs (id,case_id,tenant,family,retry_key,operation_key,queue,target,policy,payload,state,live,active,due_at,remote,priority,expires_at,last_transition)
  SELECT run,case_id,tenant,family,retry_key,operation_key,queue,target,policy,CASE WHEN operation_key IS NULL THEN payload END,'pending',true,true,due_at,remote,priority,expires_at,last_transition FROM ok
), operation AS (
  INSERT INTO recourse.operations (key, case_id, request) SELECT operation_key, case_id, payload FROM ok WHERE operation_key IS NOT NULL
), receipt AS (
  INSERT INTO recourse.receipts (` + receiptColumns + `)
  SELECT case_id, 1, run, tenant, source, subtype, actor, at, body, link FROM ok
), outbox AS (
  INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT tenant, array_agg(case_id), array_agg(1::bigint) FROM ok GROUP BY tenant
)
SELECT n, coalesce(escrow_id, 0) FROM ok`

// narrowOpenParameters are the parameters of narrowOpenSQL, as addNarrowOpen writes them; the widest
// first, as in narrowTransitionSQL.
var narrowOpenParameters = slices.Concat(
	receiptsTable.of("body"), runsTable.of("payload", "policy"),
	casesTable.of("id AS case_id", "tenant", "kind", "subject"), escrowsTable.of("reference", "currency", "held"),
	casesTable.of("asked AS amount", "submission", "content", "progression", "reason_code", "reason", "lifecycle", "adjudication", "generation", "last_link AS link"),
	runsTable.of("id AS run", "family", "retry_key", "operation_key", "queue", "target", "due_at", "remote", "priority", "expires_at", "last_transition"),
	receiptsTable.of("source", "subtype", "actor", "at"),
)

// narrowOpenColumns are the parameters of narrowOpenSQL as they are sent.
var narrowOpenColumns = narrowOpenParameters.layout()

// pickNarrowOpen reports whether narrowOpenSQL may write a new case. It may if the case has no escrow, or if the
// amount fits into one that is neither in named, which has those of the same batch, nor in this process's cache.
// If it may, pickNarrowOpen adds the escrow to named: a second case of that escrow is written with wideOpenSQL.
func (o *opener) pickNarrowOpen(ch *chainedChange, named map[escrowKey]struct{}) bool {
	if !ch.hasOneReceipt() {
		return false
	}
	name := escrowKey{ch.After.Case.Tenant, ch.OpeningEscrow.Reference}
	if name.reference == "" {
		return true
	}
	if _, taken := named[name]; taken || ch.After.Case.State.Asked > ch.OpeningEscrow.Held || o.knownEscrows.has(name) {
		return false
	}
	named[name] = struct{}{}
	return true
}

func addNarrowOpen(c *pg.BinaryColumns, ch *chainedChange) {
	k, s, r := &ch.After.Case, &ch.After.Case.State, &ch.receipts[0]
	c.Bytes(r.Body)
	c.Bytes(ch.After.Run.Payload)
	c.Str(ch.After.Run.Policy.Encode())
	c.ID(k.ID)
	c.Str(k.Tenant)
	c.Str(string(k.Kind))
	c.Str(k.Subject)
	c.Str(ch.OpeningEscrow.Reference)
	c.Str(ch.OpeningEscrow.Currency)
	c.Int8(ch.OpeningEscrow.Held)
	c.Int8(s.Asked)
	c.Str(k.Submission)
	c.Bytes(k.Content[:])
	c.Str(string(s.Progression))
	c.Str(string(s.ReasonCode))
	c.Str(s.Reason)
	c.Str(string(s.Lifecycle))
	c.Str(string(s.Outcome))
	c.Int4(s.Generation)
	c.Bytes(ch.head.Link[:])
	addNarrowOpenRun(c, &ch.After.Run)
	c.Str(string(r.Source))
	c.Str(string(r.Subtype))
	c.Str(r.Actor)
	c.Time(r.At)
}

func addNarrowOpenRun(c *pg.BinaryColumns, r *background.Run) {
	c.ID(r.ID)
	c.Str(r.Family)
	c.Str(r.RetryKey)
	if r.Operation == [32]byte{} {
		c.Null()
	} else {
		c.Bytes(r.Operation[:])
	}
	c.Str(r.Queue)
	c.Str(r.Target)
	c.Time(r.DueAt)
	c.Bool(r.Remote)
	c.Int4(r.Priority)
	c.Time(r.ExpiresAt)
	c.ID(r.LastTransition)
}

// applyNarrowOpens executes narrowOpenSQL and returns the result of each row. That of a row that the
// statement leaves out is conflict, the zero value.
func (o *opener) applyNarrowOpens(ctx context.Context, changes []*chainedChange) ([]openResult, error) {
	out := make([]openResult, len(changes))
	c := narrowOpenColumns.Get()
	for _, ch := range changes {
		addNarrowOpen(c, ch)
	}
	hitOpenPoints(failpoint.JournalBefore, changes)
	err := scanRowNumbers(ctx, o.narrowOpenStmt, len(changes), c.Args(), func(n int, escrow int64) { out[n-1] = openResult{applied, escrow} })
	narrowOpenColumns.Put(c)
	if err != nil {
		return nil, err
	}
	hitOpenPoints(failpoint.JournalAfter, changes)
	for i, opened := range out {
		if name := (escrowKey{changes[i].After.Case.Tenant, changes[i].OpeningEscrow.Reference}); opened.result == applied && name.reference != "" {
			o.knownEscrows.add(name)
		}
	}
	return out, nil
}

func hitOpenPoints(m failpoint.Moment, changes []*chainedChange) {
	for range changes {
		failpoint.Hit(m, failpoint.Open)
	}
}

// flushOpens writes a batch of new cases. Rows that do not fit the narrow statement, and those that it
// skips, are written with the wide one. The wide statement can't update a row that it inserts itself, so
// ensureEscrows first inserts the escrows that do not exist.
func (o *opener) flushOpens(changes []*chainedChange) []pg.Outcome[openResult] {
	ctx, cancel := context.WithTimeout(context.Background(), pg.StatementTimeout)
	defer cancel()
	defer o.SignalCommitted()
	named := make(map[escrowKey]struct{}, len(changes))
	return narrowThenWide(changes, func(ch *chainedChange) bool { return o.pickNarrowOpen(ch, named) },
		func(changes []*chainedChange) ([]openResult, error) { return o.applyNarrowOpens(ctx, changes) },
		func(_ *chainedChange, opened openResult) bool { return opened.result == conflict },
		func(changes []*chainedChange) ([]openResult, error) {
			if _, err := o.ensureEscrows(ctx, changes); err != nil {
				return nil, err
			}
			return applyWideOpens(ctx, o.wideOpenStmt, "", changes) // a Statement ignores the text
		})
}
