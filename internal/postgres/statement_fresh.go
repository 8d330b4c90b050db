package postgres

import (
	"context"

	"github.com/lib/pq/oid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// hotOpenSQL writes the new cases that nearly all new cases are: of a subject and an
// escrow that nobody has named before, with one run and one receipt. What it can
// see to be there already it leaves to openCaseSQL. What was committed since its
// snapshot it cannot see: then a constraint refuses the batch, all of it, and
// openCaseSQL decides row by row.
//
// Like openCaseSQL it holds the advisory lock of each subject, so that no two processes
// open one case. The id of an escrow is drawn before, so that its row is written
// once, with the reservation in it.
//
//	$1..$32 cases, each with its escrow, run, request and receipt
//	returns the numbers of the rows that were written, and their escrows
const hotOpenSQL = `
WITH f AS MATERIALIZED (
  SELECT b.*, CASE WHEN b.reference = '' THEN NULL ELSE nextval('recourse.escrows_id_seq') END AS escrow_id
  FROM unnest($1::text[],$2::bytea[],$3::text[],$4::uuid[],$5::text[],$6::text[],$7::text[],$8::text[],$9::text[],$10::bigint[],$11::bigint[],$12::text[],$13::bytea[],
    $14::text[],$15::text[],$16::text[],$17::text[],$18::text[],$19::int[],$20::bytea[],$21::uuid[],$22::text[],$23::text[],$24::bytea[],$25::text[],$26::text[],
    $27::timestamptz[],$28::uuid[],$29::text[],$30::text[],$31::text[],$32::timestamptz[]) WITH ORDINALITY
  AS b(body,payload,policy,case_id,tenant,kind,subject,reference,currency,held,amount,submission,content,progression,reason_code,
    reason,lifecycle,adjudication,generation,link,run,family,retry_key,operation_key,queue,target,due_at,last_move,source,subtype,
    actor,at,n)
  WHERE pg_try_advisory_xact_lock(` + subjectLockSQL + `)
    AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.tenant = b.tenant AND c.kind = b.kind AND c.subject = b.subject)
    AND NOT EXISTS (SELECT FROM recourse.escrows e WHERE e.tenant = b.tenant AND e.reference = b.reference)
), e AS (
  INSERT INTO recourse.escrows (id,tenant,reference,currency,held,committed) OVERRIDING SYSTEM VALUE
  SELECT escrow_id,tenant,reference,currency,held,amount FROM f WHERE reference <> '' ORDER BY tenant, reference
), c AS (
  INSERT INTO recourse.cases (id,tenant,kind,subject,escrow_id,submission,content,progression,reason_code,reason,lifecycle,adjudication,
    generation,asked,reserved,run_id,last_seq,last_link)
  SELECT case_id,tenant,kind,subject,escrow_id,submission,content,progression,reason_code,reason,lifecycle,adjudication,
    generation,amount,amount,run,1,link FROM f
), r AS (
  INSERT INTO recourse.runs (id,case_id,tenant,family,retry_key,operation_key,queue,target,policy,payload,state,live,holds,due_at,last_move)
  SELECT run,case_id,tenant,family,retry_key,operation_key,queue,target,policy,CASE WHEN operation_key IS NULL THEN payload END,'pending',true,true,due_at,last_move FROM f
), o AS (
  INSERT INTO recourse.operations (key, case_id, request) SELECT operation_key, case_id, payload FROM f WHERE operation_key IS NOT NULL
), i AS (
  INSERT INTO recourse.receipts (` + receiptColumns + `)
  SELECT case_id, 1, run, tenant, source, subtype, actor, at, body, link FROM f
), p AS (
  INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT tenant, array_agg(case_id), array_agg(1::bigint) FROM f GROUP BY tenant
)
SELECT n, coalesce(escrow_id, 0) FROM f`

// hotOpenColumns are what hotOpenSQL takes, in order; the widest first, as in hotTransitionSQL.
var hotOpenColumns = newBinaryLayout(
	oid.T_text, oid.T_bytea, oid.T_text,
	oid.T_uuid, oid.T_text, oid.T_text, oid.T_text, oid.T_text, oid.T_text, oid.T_int8, oid.T_int8, oid.T_text, oid.T_bytea,
	oid.T_text, oid.T_text, oid.T_text, oid.T_text, oid.T_text, oid.T_int4, oid.T_bytea,
	oid.T_uuid, oid.T_text, oid.T_text, oid.T_bytea, oid.T_text, oid.T_text, oid.T_timestamptz, oid.T_uuid,
	oid.T_text, oid.T_text, oid.T_text, oid.T_timestamptz,
)

// fitsHotOpen reports whether hotOpenSQL may write a new case, after those whose escrows
// are named: it is the first of an escrow that this process has not met, and there
// is room for it.
func (j *Journal) fitsHotOpen(ch *chainedChange, named map[escrowKey]struct{}) bool {
	if !ch.hasOneReceipt() {
		return false
	}
	name := escrowKey{ch.After.Case.Tenant, ch.Opening.Reference}
	if name.reference == "" {
		return true
	}
	if _, taken := named[name]; taken || ch.After.Case.State.Asked > ch.Opening.Held || j.knownEscrows.has(name) {
		return false
	}
	named[name] = struct{}{}
	return true
}

func addHotOpen(c *binaryColumns, ch *chainedChange) {
	k, s, r := &ch.After.Case, &ch.After.Case.State, &ch.receipts[0]
	c.bytes(r.Body)
	c.bytes(ch.After.Run.Payload)
	c.str(ch.After.Run.Policy.Encode())
	c.id(k.ID)
	c.str(k.Tenant)
	c.str(string(k.Kind))
	c.str(k.Subject)
	c.str(ch.Opening.Reference)
	c.str(ch.Opening.Currency)
	c.int8(ch.Opening.Held)
	c.int8(s.Asked)
	c.str(k.Submission)
	c.bytes(k.Content[:])
	c.str(string(s.Progression))
	c.str(string(s.ReasonCode))
	c.str(s.Reason)
	c.str(string(s.Lifecycle))
	c.str(string(s.Adjudication))
	c.int4(s.Generation)
	c.bytes(ch.head.Link[:])
	addHotOpenRun(c, &ch.After.Run)
	c.str(string(r.Source))
	c.str(string(r.Subtype))
	c.str(r.Actor)
	c.time(r.At)
}

func addHotOpenRun(c *binaryColumns, r *background.Run) {
	c.id(r.ID)
	c.str(r.Family)
	c.str(r.RetryKey)
	if r.Operation == [32]byte{} {
		c.null()
	} else {
		c.bytes(r.Operation[:])
	}
	c.str(r.Queue)
	c.str(r.Target)
	c.time(r.DueAt)
	c.id(r.LastTransition)
}

// applyHotOpens runs hotOpenSQL and tells which rows it wrote.
func (j *Journal) applyHotOpens(ctx context.Context, rows []*chainedChange) ([]openResult, error) {
	out := make([]openResult, len(rows))
	c := hotOpenColumns.get()
	for _, ch := range rows {
		addHotOpen(c, ch)
	}
	hitOpenPoints(failpoint.JournalBefore, rows)
	err := scanRowNumbers(ctx, j.hotOpenStmt, len(rows), c.args(), func(n int, escrow int64) { out[n-1] = openResult{applied, escrow} })
	hotOpenColumns.put(c)
	if err != nil {
		return nil, err
	}
	hitOpenPoints(failpoint.JournalAfter, rows)
	for i, o := range out {
		if name := (escrowKey{rows[i].After.Case.Tenant, rows[i].Opening.Reference}); o.result == applied && name.reference != "" {
			j.knownEscrows.add(name)
		}
	}
	return out, nil
}
