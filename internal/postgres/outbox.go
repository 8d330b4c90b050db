package postgres

import (
	"context"
	"errors"
	"time"
)

// outboxSQL leaves word of the receipts that a statement inserted, in i, for the
// sequencer: one row a tenant. Its id is drawn while the rows of the cases are
// locked, so that of two moves of one case the later has the higher id.
const outboxSQL = `
  INSERT INTO recourse.outbox (tenant, case_ids, seqs)
  SELECT i.tenant, array_agg(i.case_id), array_agg(i.seq) FROM i GROUP BY i.tenant`

// Committed is signalled, at least once, after this process has written receipts.
func (j *Journal) Committed() <-chan struct{} { return j.committed }

// signalCommitted signals Committed; it never waits.
func (j *Journal) signalCommitted() {
	select {
	case j.committed <- struct{}{}:
	default:
	}
}

const drainPause = 10 * time.Millisecond

// DrainOutbox returns when everything that was committed before the call has its place
// in the order of events. It numbers what is left itself as long as no other
// process holds the sequence.
func (j *Journal) DrainOutbox(ctx context.Context) (err error) {
	var last int64
	if err := j.readDB.QueryRowContext(ctx, `SELECT coalesce(max(id), 0) FROM recourse.outbox`).Scan(&last); err != nil {
		return unavailable(err)
	}
	s := j.Sequencer()
	defer func() { err = errors.Join(err, s.Release()) }()
	for {
		var waiting bool
		if err := j.readDB.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.outbox WHERE id <= $1)`, last).Scan(&waiting); err != nil {
			return unavailable(err)
		}
		if !waiting {
			return nil
		}
		step, err := s.Step(ctx)
		if err != nil {
			return err
		}
		if step.Rows > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(drainPause):
		}
	}
}
