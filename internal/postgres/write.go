package postgres

import (
	"context"
	"database/sql"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// write runs a statement that changes something other than a case, between its two
// failpoints.
func write(ctx context.Context, db execer, what, query string, args ...any) (sql.Result, error) {
	failpoint.Hit(failpoint.JournalBefore, what)
	res, err := db.ExecContext(ctx, query, args...)
	failpoint.Hit(failpoint.JournalAfter, what)
	return res, err
}

// passMoves passes the failpoints of moves: each receipt of a change names one.
func passMoves(m failpoint.Moment, rows []*sealed) {
	for i := range rows {
		for j := range rows[i].Drafts {
			failpoint.Hit(m, string(rows[i].Drafts[j].Subtype))
		}
	}
}

func passOpens(m failpoint.Moment, rows []*sealed) {
	for range rows {
		failpoint.Hit(m, failpoint.Open)
	}
}
