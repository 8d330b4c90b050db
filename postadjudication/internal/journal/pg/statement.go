package pg

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
)

// A Statement is a statement of a pool that is prepared when it is first used. database/sql prepares it
// again on every new connection, so that it survives a restart of the server. It has the interface of a
// connection, and ignores the text of a query.
//
// It is not prepared before, because a process uses few of the statements: one without remote workers
// leases nothing, and to parse the largest takes the server as long as to execute it.
type Statement struct {
	db       *sql.DB
	text     string
	prepared atomic.Pointer[Prepared] // nil until it is prepared
}

// Prepared is a statement that is prepared, as a Querier that ignores the text of a query.
type Prepared struct{ stmt *sql.Stmt }

// NewStatement returns a statement for the connections of a pool.
func NewStatement(db *sql.DB, text string) *Statement { return &Statement{db: db, text: text} }

// Prepare prepares the statement on a connection of the pool, unless it was prepared before. For a
// transaction it is called before the transaction begins, which would hold one connection while this
// waits for another.
func (s *Statement) Prepare(ctx context.Context) (*Prepared, error) {
	if p := s.prepared.Load(); p != nil {
		return p, nil
	}
	stmt, err := s.db.PrepareContext(ctx, s.text)
	if err != nil {
		return nil, fmt.Errorf("postgres: prepare: %w", err)
	}
	if !s.prepared.CompareAndSwap(nil, &Prepared{stmt}) {
		defer stmt.Close() // another call has prepared it meanwhile
	}
	return s.prepared.Load(), nil
}

// QueryContext implements Querier.
func (s *Statement) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	p, err := s.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	return p.QueryContext(ctx, text, args...)
}

// QueryContext implements Querier.
func (p *Prepared) QueryContext(ctx context.Context, _ string, args ...any) (*sql.Rows, error) {
	return p.stmt.QueryContext(ctx, args...)
}

// In returns the statement in a transaction.
func (p *Prepared) In(ctx context.Context, tx *sql.Tx) *Prepared {
	return &Prepared{tx.StmtContext(ctx, p.stmt)}
}
