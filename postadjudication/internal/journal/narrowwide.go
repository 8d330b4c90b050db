package journal

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// Transitions, ends of remote attempts and openings have a narrow statement each. It has parameters for the most
// frequent kind of change only, and writes a row or leaves it out. A wide statement has parameters for every
// kind, and returns what became of each row. Transitions and ends of remote attempts share one, and openings
// have another. A batch is written with the narrow statement. Rows that do not fit it are written with the wide one.
// Of the rows that the narrow statement left out, the wide one also writes all openings and, of transitions, the claims,
// since a circuit breaker may be open. Other transitions and ends of remote attempts stay conflicts.

// narrowThenWide writes the eligible rows with the narrow statement, and all other rows with
// the wide one. An eligible row is written with the wide one as well if retryWide is true for
// its result, or if the narrow statement failed.
func narrowThenWide[R any](changes []*chainedChange, eligible func(*chainedChange) bool, narrow func([]*chainedChange) ([]R, error), retryWide func(*chainedChange, R) bool, wide func([]*chainedChange) ([]R, error)) []pg.Outcome[R] {
	out := make([]pg.Outcome[R], len(changes))
	var first, rest []int
	for i, ch := range changes {
		if eligible(ch) {
			first = append(first, i)
		} else {
			rest = append(rest, i)
		}
	}
	if len(first) > 0 {
		values, err := narrow(selectChanges(changes, first))
		switch {
		case err == nil:
			for n, i := range first {
				if out[i].Value = values[n]; retryWide(changes[i], values[n]) {
					rest = append(rest, i)
				}
			}
		case pg.IsContention(err) || pg.IsDataError(err):
			rest = append(rest, first...)
		default:
			for _, i := range first {
				out[i].Err = pg.Wrap(err)
			}
		}
	}
	if len(rest) > 0 {
		slices.Sort(rest)
		for n, a := range splitOnDataError(selectChanges(changes, rest), wide) {
			out[rest[n]] = a
		}
	}
	return out
}

func selectChanges(changes []*chainedChange, at []int) []*chainedChange {
	out := make([]*chainedChange, len(at))
	for n, i := range at {
		out[n] = changes[i]
	}
	return out
}

// splitOnDataError executes a batch. If the server refuses a value or a constraint is violated, it executes one
// statement per row.
func splitOnDataError[R any](changes []*chainedChange, run func([]*chainedChange) ([]R, error)) []pg.Outcome[R] {
	out := make([]pg.Outcome[R], len(changes))
	values, err := run(changes)
	switch {
	case err == nil:
		for i, value := range values {
			out[i].Value = value
		}
	case pg.IsContention(err):
		return out // the zero value of R is conflict: CommitTransition decides each row again, and openWithRetry opens it again
	case pg.IsDataError(err) && len(changes) > 1:
		for i := range changes {
			out[i] = splitOnDataError(changes[i:i+1], run)[0]
		}
	default:
		for i := range out {
			out[i].Err = unrecordableOrWrapped(err)
		}
	}
	return out
}

// scanRowNumbers executes a statement that returns the numbers, from 1, of the rows it
// wrote, with one value for each. q is a pg.Statement, which ignores the text.
func scanRowNumbers(ctx context.Context, q pg.Querier, count int, args []any, each func(n int, value int64)) error {
	rows, err := q.QueryContext(ctx, "", args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		var value int64
		if err := rows.Scan(&n, &value); err != nil {
			return err
		}
		if n < 1 || n > count {
			return fmt.Errorf("unexpected result of row %d of %d", n, count)
		}
		each(n, value)
	}
	return rows.Err()
}

// applyEachLeaseClaim executes leaseClaimSQL for each row, and keeps those that the database does not refuse.
func applyEachLeaseClaim(ctx context.Context, tx *sql.Tx, q pg.Querier, changes []*chainedChange, leases []givenLease) (out []pg.Outcome[result], err error) {
	for i := range changes {
		if _, err := tx.ExecContext(ctx, `SAVEPOINT claim`); err != nil {
			return nil, err
		}
		one, err := applyLeaseClaims(ctx, tx, q, changes[i:i+1], leases[i:i+1])
		end := `RELEASE SAVEPOINT claim`
		switch {
		case pg.IsDataError(err):
			one, end = []pg.Outcome[result]{{Err: unrecordable(err)}}, `ROLLBACK TO SAVEPOINT claim`
		case err != nil:
			return nil, err
		}
		if _, err := tx.ExecContext(ctx, end); err != nil {
			return nil, err
		}
		out = append(out, one[0])
	}
	return out, nil
}
