package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// flushTransitions writes a batch of transitions: first with the narrow statement
// (hotTransitionSQL), which covers most of them, then the rest with the wide one (transitionSQL). A batch that the server refuses for
// the values of one row is split, so that only that row fails.
func (j *Journal) flushTransitions(rows []*chainedChange) []pg.Answer[result] {
	ctx, cancel := context.WithTimeout(context.Background(), pg.StatementTimeout)
	defer cancel()
	defer j.SignalCommitted()
	return narrowThenWide(rows, (*chainedChange).fitsHotTransition,
		func(rows []*chainedChange) ([]result, error) { return j.applyHotTransitions(ctx, rows) },
		func(row *chainedChange, v result) bool { return v == conflict && row.isClaim() },
		func(rows []*chainedChange) ([]result, error) {
			return applyTransitions(ctx, j.transitionStmt, "", rows)
		})
}

// flushOpens writes a batch of new cases in the same way, with hotOpenSQL and openCaseSQL.
func (j *opener) flushOpens(rows []*chainedChange) []pg.Answer[openResult] {
	ctx, cancel := context.WithTimeout(context.Background(), pg.StatementTimeout)
	defer cancel()
	defer j.SignalCommitted()
	named := make(map[escrowKey]struct{}, len(rows))
	return narrowThenWide(rows, func(row *chainedChange) bool { return j.fitsHotOpen(row, named) },
		func(rows []*chainedChange) ([]openResult, error) { return j.applyHotOpens(ctx, rows) },
		func(_ *chainedChange, o openResult) bool { return o.result == conflict },
		func(rows []*chainedChange) ([]openResult, error) {
			if _, err := j.ensureEscrows(ctx, rows); err != nil {
				return nil, err
			}
			return applyOpens(ctx, j.openStmt, "", rows)
		})
}

// narrowThenWide writes the eligible rows with the narrow statement, and all other rows with
// the wide one. An eligible row is written with the wide one as well if retryWide is true for
// its result, or if the narrow statement failed.
func narrowThenWide[R any](rows []*chainedChange, eligible func(*chainedChange) bool, narrow func([]*chainedChange) ([]R, error), retryWide func(*chainedChange, R) bool, wide func([]*chainedChange) ([]R, error)) []pg.Answer[R] {
	out := make([]pg.Answer[R], len(rows))
	var first, rest []int
	for i, row := range rows {
		if eligible(row) {
			first = append(first, i)
		} else {
			rest = append(rest, i)
		}
	}
	if len(first) > 0 {
		values, err := narrow(selectRows(rows, first))
		switch {
		case err == nil:
			for n, i := range first {
				if out[i].Value = values[n]; retryWide(rows[i], values[n]) {
					rest = append(rest, i)
				}
			}
		case pg.IsContention(err) || pg.IsDataError(err):
			rest = append(rest, first...)
		default:
			for _, i := range first {
				out[i].Err = pg.Unavailable(err)
			}
		}
	}
	if len(rest) > 0 {
		slices.Sort(rest)
		for n, a := range splitOnDataError(selectRows(rows, rest), wide) {
			out[rest[n]] = a
		}
	}
	return out
}

func selectRows(rows []*chainedChange, at []int) []*chainedChange {
	out := make([]*chainedChange, len(at))
	for n, i := range at {
		out[n] = rows[i]
	}
	return out
}

func (j *Journal) flushFinds(ids []background.RunID) []pg.Answer[Snapshot] {
	ctx, cancel := context.WithTimeout(context.Background(), pg.StatementTimeout)
	defer cancel()
	c := pg.NewColumns(1, 1)
	for _, id := range ids {
		c.ID(id)
	}
	out := make([]pg.Answer[Snapshot], len(ids))
	found, err := snapshots(ctx, j.findStmt, "", c.Args()...)
	byID := make(map[background.RunID]Snapshot, len(found))
	for _, s := range found {
		byID[s.Run.ID] = s
	}
	var unreadables unreadable
	if errors.As(err, &unreadables) {
		err = nil
		j.warnUnreadable(unreadables)
	}
	for i, id := range ids {
		s, ok := byID[id]
		at := slices.IndexFunc(unreadables, func(u unreadableRun) bool { return u.id == id })
		switch {
		case at >= 0:
			out[i].Err = unreadables[at : at+1]
		case err != nil:
			out[i].Err = pg.Unavailable(err)
		case !ok:
			out[i].Err = background.ErrNotFound
		default:
			out[i].Value = s
		}
	}
	return out
}

// splitOnDataError runs a batch. If a value makes it fail, it runs each row alone.
func splitOnDataError[R any](rows []*chainedChange, run func([]*chainedChange) ([]R, error)) []pg.Answer[R] {
	out := make([]pg.Answer[R], len(rows))
	values, err := run(rows)
	switch {
	case err == nil:
		for i, v := range values {
			out[i].Value = v
		}
	case pg.IsContention(err):
		return out // conflict: each row is tried again, alone
	case pg.IsDataError(err) && len(rows) > 1:
		for i := range rows {
			out[i] = splitOnDataError(rows[i:i+1], run)[0]
		}
	default:
		for i := range out {
			out[i].Err = unrecordableOrUnavailable(err)
		}
	}
	return out
}

// scanRowNumbers executes a statement that returns the numbers, from 1, of the rows it
// wrote, with one value for each.
func scanRowNumbers(ctx context.Context, q pg.Querier, rows int, args []any, each func(n int, value int64)) error {
	res, err := q.QueryContext(ctx, "", args...)
	if err != nil {
		return err
	}
	defer res.Close()
	for res.Next() {
		var n int
		var value int64
		if err := res.Scan(&n, &value); err != nil {
			return err
		}
		if n < 1 || n > rows {
			return fmt.Errorf("postgres: unexpected answer for row %d of %d", n, rows)
		}
		each(n, value)
	}
	return res.Err()
}
