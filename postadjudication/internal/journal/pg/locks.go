package pg

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// Exclusive runs work while this process holds the advisory lock that a statement tries to take.
// It reports false, without running work, if another process holds it. The lock ends with its
// connection, so that a process that dies releases it. If the connection is lost while work runs,
// another process may begin, so that concurrent work must be safe.
func Exclusive(ctx context.Context, db *sql.DB, tryLockSQL string, work func() error) (acquired bool, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, Unavailable(err)
	}
	defer func() { err = errors.Join(err, ReleaseLocks(ctx, conn)) }()
	if err := conn.QueryRowContext(ctx, tryLockSQL).Scan(&acquired); err != nil {
		return false, Unavailable(err)
	}
	if !acquired {
		return false, nil
	}
	return true, work()
}

// ReleaseLocks releases the session's locks. If that fails it closes the connection: the
// pool must not keep one that holds a lock.
func ReleaseLocks(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StatementTimeout)
	defer cancel()
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock_all()`)
	if err == nil {
		return conn.Close()
	}
	drop := conn.Raw(func(any) error { return driver.ErrBadConn })
	if errors.Is(drop, driver.ErrBadConn) || errors.Is(drop, sql.ErrConnDone) {
		return nil
	}
	return errors.Join(Unavailable(err), drop)
}
