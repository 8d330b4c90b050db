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
	conn, err := TryLock(ctx, db, tryLockSQL)
	if err != nil || conn == nil {
		return false, err
	}
	defer func() { err = errors.Join(err, ReleaseLocks(ctx, conn)) }()
	return true, work()
}

// lockTries is how many connections ConnectAndLock tries. A pool keeps some that the server has
// closed, since it ends those that are idle.
const lockTries = 5

// TryLock returns the connection that holds the advisory lock that a statement tries to take, or
// nil if another session holds it. The caller must release it with ReleaseLocks.
func TryLock(ctx context.Context, db *sql.DB, tryLockSQL string, args ...any) (*sql.Conn, error) {
	conn, acquired, err := ConnectAndLock(ctx, db, tryLockSQL, args...)
	if err != nil || acquired {
		return conn, Wrap(err)
	}
	return nil, ReleaseLocks(ctx, conn)
}

// ConnectAndLock returns a connection over which a statement tried to take an advisory lock, and
// reports whether the connection holds the lock. It tries another connection if the server has
// closed one that the pool kept. After an error there is no connection.
func ConnectAndLock(ctx context.Context, db *sql.DB, tryLockSQL string, args ...any) (conn *sql.Conn, acquired bool, err error) {
	for try := 1; ; try++ {
		if conn, err = db.Conn(ctx); err != nil {
			return nil, false, err
		}
		err = conn.QueryRowContext(ctx, tryLockSQL, args...).Scan(&acquired)
		switch {
		case err == nil:
			return conn, acquired, nil
		case errors.Is(err, driver.ErrBadConn) && try < lockTries:
			if err := conn.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) { // database/sql has closed it
				return nil, false, err
			}
		default:
			return nil, false, errors.Join(err, ReleaseLocks(ctx, conn))
		}
	}
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
	return errors.Join(Wrap(err), drop)
}
