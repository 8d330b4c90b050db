package journal

import (
	"context"
	"database/sql"

	"github.com/lib/pq/oid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema/stored"
)

// Pools returns all connection pools by purpose.
func (j *Journal) Pools() map[string]*sql.DB {
	return map[string]*sql.DB{
		"batches": j.batchDB, "waiting submissions": j.opener.submitPath.DB, "waiting transitions": j.transitionPath.DB, "transactions": j.txPath.DB, "queries": j.readDB.DB,
		"heartbeat": j.Sessions.heartbeatDB, "sequencer": j.Outbox.sequencerDB, "webhooks": j.Outbox.senderDB,
	}
}

// Caches reports whether the process has a run in its cache.
func (j *Journal) Caches(id background.RunID) bool {
	_, cached := j.cache.Get(id)
	return cached
}

// Sums returns what an escrow has committed and the sum of its cases.
func (e *Escrows) Sums(ctx context.Context, tenant, reference string) (committed, sum int64, err error) {
	err = e.readDB.QueryRowContext(ctx, `SELECT e.committed, coalesce((SELECT sum(c.reserved + c.released + c.refunded) FROM recourse.cases c WHERE c.escrow_id = e.id), 0)
		FROM recourse.escrow_sums e WHERE e.tenant = $1 AND e.reference = $2`, tenant, reference).Scan(&committed, &sum)
	return committed, sum, err
}

// EventPageSQL is the statement of From.
const EventPageSQL = stored.EventPageSQL

// DueRemoteSQL is the statement by which remote workers fetch.
const DueRemoteSQL = dueRemoteSQL

// EndLeaseSQL is the statement that marks the end of a lease.
var EndLeaseSQL = endLeaseSQL

// DescribedColumns returns the columns of the tables that statements are derived from, by
// table: name and type of each, in order.
func DescribedColumns() map[string][][2]string {
	out := map[string][][2]string{}
	for _, t := range []table{casesTable, runsTable, receiptsTable, escrowsTable, operationsTable, leasesTable} {
		for _, c := range t.columns {
			typ := map[oid.Oid]string{oid.T_int4: "integer", oid.T_bool: "boolean", oid.T_timestamptz: "timestamp with time zone", oid.T__int4: "integer[]"}[c.typ]
			if typ == "" {
				typ = typeNames[c.typ]
			}
			out[t.name] = append(out[t.name], [2]string{c.name, typ})
		}
	}
	return out
}

// ArrayStatements are statements that take arrays, by their declarations.
var ArrayStatements = map[string]string{
	"advanceNotificationSQL": advanceNotificationSQL, "runStatusesSQL": runStatusesSQL, "byRunsSQL": byRunsSQL, "listedRunsSQL": listedRunsSQL,
	"letterRowsByIDSQL": letterRowsByIDSQL, "handlersSQL": handlersSQL, "activeRunsSQL": activeRunsSQL, "lineageReplaysSQL": lineageReplaysSQL,
	"submittersSQL": submittersSQL, "outputsSQL": outputsSQL, "recentReceiptsSQL": recentReceiptsSQL, "extendLeasesSQL": extendLeasesSQL,
	"countReplaysSQL": countReplaysSQL, "forkedFingerprintsSQL": forkedFingerprintsSQL, "heldLeasesSQL": heldLeasesSQL,
	"startedByOthersSQL": startedByOthersSQL, "fetchableRunsSQL": fetchableRunsSQL, "jobLabelsSQL": jobLabelsSQL, "liveHolderSQL": `SELECT EXISTS (SELECT ` + liveHolderSQL + `)`,
	"marksSQL": marksSQL("l.last"), "overQueueCountSQL": overQueueCountSQL, "targetDifferencesSQL": targetDifferencesSQL, "recordTargetsSQL": recordTargetsSQL,
	"foldDeltasSQL": foldDeltasSQL, "ensureEscrowsSQL": ensureEscrowsSQL, "returnsSQL": returnsSQL, "insertReturnsSQL": insertReturnsSQL,
	"upsertAnnotationsSQL": upsertAnnotationsSQL, "deleteAnnotationsSQL": deleteAnnotationsSQL, "erasePayloadsSQL": erasePayloadsSQL,
	"linkLetterHandlersSQL": linkLetterHandlersSQL, "dueRemoteSQL": dueRemoteSQL,
	"wideTransitionSQL": withSkipLocked(wideTransitionSQL), "narrowTransitionSQL": narrowTransitionSQL, "leaseEndSQL": leaseEndSQL, "leaseClaimSQL": leaseClaimSQL,
	"wideOpenSQL": withTryLock(wideOpenSQL), "narrowOpenSQL": narrowOpenSQL,
}

// WideTransitionArgs returns the arguments of wideTransitionSQL, as the following do of theirs.
func WideTransitionArgs(changes []Change) []any { return wideTransitionArgs(mustChain(changes)) }

func WideOpenArgs(changes []Change) []any { return wideOpenArgs(mustChain(changes)) }

func NarrowOpenArgs(changes []Change) []any {
	c := narrowOpenColumns.Get()
	for _, ch := range mustChain(changes) {
		addNarrowOpen(c, ch)
	}
	return c.Args()
}

func NarrowTransitionArgs(changes []Change) []any {
	c, sessions := narrowTransitionColumns.Get(), claimSessionColumns.Get()
	addNarrowTransitions(c, sessions, mustChain(changes))
	return append(sessions.Args(), c.Args()...)
}

func LeaseEndArgs(changes []Change) []any {
	c := leaseEndColumns.Get()
	for _, ch := range mustChain(changes) {
		addNarrowTransition(c, ch)
		c.Int4(0)
		c.Null()
	}
	return c.Args()
}

func LeaseClaimArgs(changes []Change) []any {
	c := leaseClaimColumns.Get()
	for _, ch := range mustChain(changes) {
		addNarrowTransition(c, ch)
		c.Str("")
		c.Int4(1)
		c.Int4(1)
		c.Null()
		c.Str("")
	}
	return c.Args()
}

func mustChain(changes []Change) []*chainedChange {
	chained, err := chainAll(context.Background(), changes)
	if err != nil {
		panic(err)
	}
	return chained
}
