package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/recourse-dev/recourse/background"
)

// flushMoves writes a batch of moves: most by the statement for the moves that most
// are, and what that does not write by the one for all. A batch that the server
// refuses for one row's value is split, so that only that row fails.
func (j *Journal) flushMoves(rows []*sealed) []answer[verdict] {
	ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
	defer cancel()
	defer j.announce()
	return twice(rows, (*sealed).hot,
		func(rows []*sealed) ([]verdict, error) { return j.applyHot(ctx, rows) },
		func(row *sealed, v verdict) bool { return v == lost && row.claims() },
		func(rows []*sealed) ([]verdict, error) { return applyMoves(ctx, j.move, "", rows) })
}

// flushOpens writes a batch of new cases in the same way.
func (j *Journal) flushOpens(rows []*sealed) []answer[opened] {
	ctx, cancel := context.WithTimeout(context.Background(), statementLimit)
	defer cancel()
	defer j.announce()
	named := make(map[escrowName]struct{}, len(rows))
	return twice(rows, func(row *sealed) bool { return j.fresh(row, named) },
		func(rows []*sealed) ([]opened, error) { return j.applyFresh(ctx, rows) },
		func(_ *sealed, o opened) bool { return o.verdict == lost },
		func(rows []*sealed) ([]opened, error) {
			if _, err := j.ensureEscrows(ctx, rows); err != nil {
				return nil, err
			}
			return applyOpens(ctx, j.open, "", rows)
		})
}

// twice runs the rows that a narrow statement may write, then the others, those
// that it left open, and all of them when it was refused as a whole, through the
// wide one.
func twice[R any](rows []*sealed, may func(*sealed) bool, narrow func([]*sealed) ([]R, error), again func(*sealed, R) bool, wide func([]*sealed) ([]R, error)) []answer[R] {
	out := make([]answer[R], len(rows))
	var first, rest []int
	for i, row := range rows {
		if may(row) {
			first = append(first, i)
		} else {
			rest = append(rest, i)
		}
	}
	if len(first) > 0 {
		values, err := narrow(pick(rows, first))
		switch {
		case err == nil:
			for n, i := range first {
				if out[i].value = values[n]; again(rows[i], values[n]) {
					rest = append(rest, i)
				}
			}
		case ofContention(err) || ofData(err):
			rest = append(rest, first...)
		default:
			for _, i := range first {
				out[i].err = unavailable(err)
			}
		}
	}
	if len(rest) > 0 {
		slices.Sort(rest)
		for n, a := range split(pick(rows, rest), wide) {
			out[rest[n]] = a
		}
	}
	return out
}

func pick(rows []*sealed, at []int) []*sealed {
	out := make([]*sealed, len(at))
	for n, i := range at {
		out[n] = rows[i]
	}
	return out
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
		j.passOver(bad)
	}
	for i, id := range ids {
		s, ok := byID[id]
		at := slices.IndexFunc(bad, func(u unreadableRun) bool { return u.id == id })
		switch {
		case at >= 0:
			out[i].err = bad[at : at+1]
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
			out[i].err = refusedOr(err)
		}
	}
	return out
}
