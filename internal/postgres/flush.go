package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/recourse-dev/recourse/background"
)

// flushMoves writes a batch of moves. A batch that the server refuses for one
// row's value is split, so that only that row fails.
func (j *Journal) flushMoves(rows []*sealed) []answer[verdict] {
	ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
	defer cancel()
	defer j.announce()
	return split(rows, func(rows []*sealed) ([]verdict, error) { return applyMoves(ctx, j.move, "", rows) })
}

func (j *Journal) flushOpens(rows []*sealed) []answer[opened] {
	ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
	defer cancel()
	defer j.announce()
	return split(rows, func(rows []*sealed) ([]opened, error) {
		if err := j.ensureEscrows(ctx, rows); err != nil {
			return nil, err
		}
		return applyOpens(ctx, j.open, "", rows)
	})
}

func (j *Journal) flushFinds(ids []background.RunID) []answer[Snapshot] {
	ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
	defer cancel()
	c := newColumns(1, 1)
	for _, id := range ids {
		c.id(id)
	}
	out := make([]answer[Snapshot], len(ids))
	found, err := snapshots(ctx, j.find, "", c.args()...)
	byID := make(map[background.RunID]Snapshot, len(found))
	for _, s := range found {
		byID[s.Run.ID] = s
	}
	var bad unreadable
	if errors.As(err, &bad) {
		err = nil
	}
	for i, id := range ids {
		s, ok := byID[id]
		at := slices.IndexFunc(bad, func(u unreadableRun) bool { return u.id == id })
		switch {
		case at >= 0:
			out[i].err = unavailable(bad[at].err)
		case err != nil:
			out[i].err = unavailable(err)
		case !ok:
			out[i].err = background.ErrNotFound
		default:
			out[i].value = s
		}
	}
	return out
}

// split runs a batch, and when it fails for a value runs each row alone.
func split[R any](rows []*sealed, run func([]*sealed) ([]R, error)) []answer[R] {
	out := make([]answer[R], len(rows))
	values, err := run(rows)
	switch {
	case err == nil:
		for i, v := range values {
			out[i].value = v
		}
	case ofContention(err):
		return out // lost: each row asks again, alone
	case ofData(err) && len(rows) > 1:
		for i := range rows {
			out[i] = split(rows[i:i+1], run)[0]
		}
	default:
		for i := range out {
			out[i].err = unavailable(err)
		}
	}
	return out
}
