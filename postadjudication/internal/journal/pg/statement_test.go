package pg_test

import (
	"context"
	"database/sql"
	"os"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

const conns = 4

func openPool(t *testing.T) (pool, owner *sql.DB) {
	t.Helper()
	url := testkit.Database(t)
	pool, err := pg.OpenPool(url, pg.PoolConfig{Purpose: "statements", MaxConns: conns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return pool, testkit.OpenAsOwner(t, url)
}

// number returns the number that a statement returns.
func number(ctx context.Context, q pg.Querier, args ...any) (n int, err error) {
	rows, err := q.QueryContext(ctx, "", args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&n); err != nil {
			return 0, err
		}
	}
	return n, rows.Err()
}

func mustNumber(t *testing.T, q pg.Querier, want int, args ...any) {
	t.Helper()
	if got, err := number(t.Context(), q, args...); err != nil || got != want {
		t.Errorf("%d %v, want %d", got, err, want)
	}
}

func mustExec(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.Exec(query); err != nil {
		t.Fatal(err)
	}
}

// A statement that nobody uses opens no connection. One that can't be prepared is prepared by a later
// call, and is prepared again when the server has closed every connection.
func TestAStatementIsPreparedWhenItIsUsed(t *testing.T) {
	t.Parallel()
	pool, owner := openPool(t)
	s := pg.NewStatement(pool, `SELECT n + $1::int FROM numbers`)
	if open := pool.Stats().OpenConnections; open != 0 {
		t.Errorf("%d connections before the first use", open)
	}
	if n, err := number(t.Context(), s, 1); err == nil {
		t.Errorf("a table that does not exist has %d", n)
	}
	mustExec(t, owner, `CREATE TABLE numbers AS SELECT 41 AS n`)
	mustNumber(t, s, 42, 1)
	mustNumber(t, s, 43, 2)
	var names int
	if err := pool.QueryRow(`SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%numbers%'`).Scan(&names); err != nil || names != 1 {
		t.Errorf("the connection has the statement %d times, want once: %v", names, err)
	}
	mustExec(t, owner, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'recourse/statements' AND datname = current_database()`)
	mustNumber(t, s, 44, 3)
}

func TestAStatementIsUsedByManyAtOnce(t *testing.T) {
	t.Parallel()
	pool, _ := openPool(t)
	s := pg.NewStatement(pool, `SELECT $1::int`)
	var all sync.WaitGroup
	for i := range 5 * conns {
		all.Go(func() { mustNumber(t, s, i, i) })
	}
	all.Wait()
}

// As many transactions as there are connections prepare the statement before they begin, so that none
// waits for a connection that another one holds.
func TestAStatementInTransactions(t *testing.T) {
	t.Parallel()
	pool, owner := openPool(t)
	mustExec(t, owner, `CREATE TABLE numbers (n int)`)
	s := pg.NewStatement(pool, `INSERT INTO numbers SELECT $1 RETURNING n`)
	var begun, all sync.WaitGroup
	begun.Add(conns)
	for i := range conns {
		all.Go(func() {
			prepared, err := s.Prepare(t.Context())
			if err != nil {
				t.Error(err)
				begun.Done()
				return
			}
			tx, err := pool.BeginTx(t.Context(), nil)
			begun.Done()
			if err != nil {
				t.Error(err)
				return
			}
			begun.Wait()
			mustNumber(t, prepared.In(t.Context(), tx), i, i)
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	mustNumber(t, pg.NewStatement(pool, `SELECT count(*)::int FROM numbers`), 0)
}
