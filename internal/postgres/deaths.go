package postgres

import (
	"context"
)

// DeathEvent is the receipt of a run that died, with what the receipt leaves to the run
// and the case.
type DeathEvent struct {
	NumberedReceipt
	Family   string
	RetryKey string
	Kind     Kind
	Subject  string
}

// LastPosition is the number of the last receipt in the order of events; 0 when there
// is none.
func (j *Journal) LastPosition(ctx context.Context) (last int64, err error) {
	if err := j.readDB.QueryRowContext(ctx, `SELECT coalesce(max(last), 0) FROM recourse.event_log`).Scan(&last); err != nil {
		return 0, unavailable(err)
	}
	return last, nil
}

const deathsUntilSQL = `SELECT coalesce(max(last), $1) FROM (SELECT last FROM recourse.event_log WHERE last > $1 ORDER BY last LIMIT $2) l`

const deathsSQL = `
WITH n AS MATERIALIZED (
  SELECT l.last - cardinality(l.seqs) + u.place AS number, u.case_id, u.seq FROM recourse.event_log l, LATERAL (
    SELECT case_id, seq, row_number() OVER (ORDER BY case_id, seq) AS place FROM unnest(l.case_ids, l.seqs) AS u(case_id, seq)) u
  WHERE l.last > $1 AND l.last <= $2
)
SELECT n.number, r.case_id, r.seq, r.run_id, r.tenant, r.source, r.subtype, r.actor, r.at, r.body, r.link, d.family, d.retry_key, c.kind, c.subject
FROM n JOIN recourse.receipts r ON r.case_id = n.case_id AND r.seq = n.seq AND r.subtype = 'dead-lettered'
  JOIN recourse.runs d ON d.id = r.run_id JOIN recourse.cases c ON c.id = r.case_id
ORDER BY n.number`

type deathRow struct {
	numberedRow
	Family   string `db:"family"`
	RetryKey string `db:"retry_key"`
	Kind     string `db:"kind"`
	Subject  string `db:"subject"`
}

// Deaths reads the deaths of all tenants in the order of events, behind a number
// that LastPosition or Deaths gave. It looks through at most as many statements'
// receipts as said and gives the number to go on from, which is the one given when
// nothing has happened.
func (j *Journal) Deaths(ctx context.Context, after int64, statements int) (found []DeathEvent, next int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := j.readDB.QueryRowContext(ctx, deathsUntilSQL, after, statements).Scan(&next); err != nil {
		return nil, after, unavailable(err)
	}
	if next == after {
		return nil, after, nil
	}
	var rows []deathRow
	if err := j.readDB.SelectContext(ctx, &rows, deathsSQL, after, next); err != nil {
		return nil, after, unavailable(err)
	}
	found = make([]DeathEvent, len(rows))
	for i, r := range rows {
		found[i] = DeathEvent{NumberedReceipt: NumberedReceipt{r.Position, r.receipt()}, Family: r.Family, RetryKey: r.RetryKey, Kind: Kind(r.Kind), Subject: r.Subject}
	}
	return found, next, nil
}
