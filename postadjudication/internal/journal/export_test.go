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

// ArrayStatements are statements that take arrays of ids, by what they do.
var ArrayStatements = map[string]string{
	"notify again": advanceNotificationSQL, "statuses of runs": runStatusesSQL, "snapshots of runs": byRunsSQL, "list of runs": listedRunsSQL,
	"dead letters": letterRowsByIDSQL, "handlers": handlersSQL, "active runs": activeRunsSQL, "replays of lineages": lineageReplaysSQL,
	"submitters": submittersSQL, "outputs": outputsSQL, "newest receipts": recentReceiptsSQL, "extend leases": extendLeasesSQL,
	"count replays": countReplaysSQL, "fingerprints": forkedFingerprintsSQL,
}
