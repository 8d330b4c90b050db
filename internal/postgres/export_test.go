package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/lib/pq/oid"
)

// Pools returns all connection pools by purpose.
func (j *Journal) Pools() map[string]*sql.DB {
	return map[string]*sql.DB{
		"batches": j.batchDB, "waiting submissions": j.opener.submitPath.db, "waiting transitions": j.transitionPath.db, "transactions": j.txPath.db, "queries": j.readDB.DB,
		"heartbeat": j.Sessions.heartbeatDB, "sequencer": j.Outbox.sequencerDB, "projection": j.Index.projectionDB, "search": j.Index.searchDB,
	}
}

// All access paths: those of plans, then an ordered scan with a low limit, and a heap scan.
const (
	AccessPaths = int(orderedScan) + 3
	ShortScan   = AccessPaths - 2
	HeapScan    = AccessPaths - 1
)

// ChosenPath selects the path that the plan chooses.
const ChosenPath = -1

// PositionsByPath finds positions by a given access path. It reports false if the filter
// can't use that path.
func (i *Index) PositionsByPath(ctx context.Context, w int, tenant string, f LetterFilter, o LetterOrder, after LetterPosition, limit int) ([]LetterPosition, bool, error) {
	p, err := i.planSearch(ctx, tenant, f, o, after, limit)
	if err != nil || p.empty() {
		return nil, true, err
	}
	if w == ChosenPath {
		positions, err := i.findPositions(ctx, p, after, limit)
		return positions, true, err
	}
	ranged := p.filter.rangedColumns()
	if p.allGroups && len(p.groups) == 0 { // no facet conditions, so they were not read
		if err = i.readGroups(ctx, &p, after); err != nil || p.empty() {
			return nil, true, err
		}
	}
	if w == HeapScan {
		if f.hasKey() || !p.checksText() {
			return nil, false, nil
		}
		positions, err := i.findByHeapScan(ctx, p, after, limit)
		return positions, true, err
	}
	if p.path = accessPath(w); w == ShortScan {
		p.path, p.scanLimit, p.textLimit = orderedScan, 1+limit, 3
	}
	switch {
	case p.path == byKey && !f.hasKey(), p.path != byKey && f.hasKey(), p.path == byRange && len(ranged) == 0, p.hasDeathBounds() && (p.path == byRange || p.path == orderedScan):
		return nil, false, nil
	case p.path == byRange:
		p.column = ranged[len(ranged)-1]
	case w == ShortScan:
		positions, err := i.findPositions(ctx, p, after, limit)
		return positions, true, err
	}
	positions, err := i.findByPath(ctx, p, after, limit)
	return positions, true, err
}

// StoredTrigrams returns the trigrams stored for a message.
func StoredTrigrams(tenant, message, constant string) string {
	return arrayLiteral(storedTrigrams(tenant, message, constant))
}

// CountFacetGroups returns the number of facet groups that a filter may match.
func (i *Index) CountFacetGroups(ctx context.Context, tenant string, f LetterFilter) (int, error) {
	groups, _, err := readFacetGroups(ctx, i.searchDB, tenant, f, LetterOrder{})
	return len(groups), err
}

// Compare compares two positions in the order.
func (o LetterOrder) Compare(a, b LetterPosition) int { return o.compare(a, b) }

// Sums returns what an escrow has committed and the sum of its cases.
func (j *Escrows) Sums(ctx context.Context, tenant, reference string) (committed, sum int64, err error) {
	err = j.readDB.QueryRowContext(ctx, `SELECT e.committed, coalesce((SELECT sum(c.reserved + c.released + c.refunded) FROM recourse.cases c WHERE c.escrow_id = e.id), 0)
		FROM recourse.escrow_sums e WHERE e.tenant = $1 AND e.reference = $2`, tenant, reference).Scan(&committed, &sum)
	return committed, sum, err
}

// EventPageSQL is the statement of From.
const EventPageSQL = eventPageSQL

// MigrateTo migrates a schema to any version.
func MigrateTo(ctx context.Context, databaseURL string, version int64) (err error) {
	db, err := openPool(databaseURL, poolConfig{purpose: "migrate", maxConns: 3})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS recourse`); err != nil {
		return err
	}
	p, err := newProvider(db)
	if err != nil {
		return err
	}
	_, err = p.UpTo(ctx, version)
	return err
}

// DescribedColumns returns the columns of the tables that statements are derived from, by
// table: name and type of each, in order.
func DescribedColumns() map[string][][2]string {
	out := map[string][][2]string{}
	for _, t := range []table{casesTable, runsTable, receiptsTable, escrowsTable, operationsTable} {
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
