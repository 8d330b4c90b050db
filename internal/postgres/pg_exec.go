package postgres

import (
	"context"
	"database/sql"

	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// execWithFailpoints executes a statement between its two failpoints. It is for statements
// that change something other than a case.
func execWithFailpoints(ctx context.Context, db execer, point, query string, args ...any) (sql.Result, error) {
	failpoint.Hit(failpoint.JournalBefore, point)
	res, err := db.ExecContext(ctx, query, args...)
	failpoint.Hit(failpoint.JournalAfter, point)
	return res, err
}

// hitTransitionPoints hits the failpoints of transitions: each receipt of a change names
// one.
func hitTransitionPoints(m failpoint.Moment, rows []*chainedChange) {
	for i := range rows {
		for j := range rows[i].Drafts {
			failpoint.Hit(m, string(rows[i].Drafts[j].Subtype))
		}
	}
}

func hitOpenPoints(m failpoint.Moment, rows []*chainedChange) {
	for range rows {
		failpoint.Hit(m, failpoint.Open)
	}
}

// queryAll returns all rows of a query in a transaction, as structs with a db tag for each column.
func queryAll[T any](ctx context.Context, tx *sql.Tx, query string, args ...any) (found []T, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if err := sqlx.StructScan(rows, &found); err != nil {
		return nil, err
	}
	return found, rows.Err()
}
