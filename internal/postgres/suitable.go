package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrUnsuitable means that what the URL leads to is no server that the journal can keep
// its promises on. The error says in one line what it is and what to do.
var ErrUnsuitable = errors.New("unsuitable server")

var (
	// ErrPooled is the ErrUnsuitable of a pooler in transaction mode.
	ErrPooled  = fmt.Errorf("%w: a connection pooler in transaction mode is in between, which gives one session to many clients; connect to Postgres itself, or through a pooler in session mode", ErrUnsuitable)
	errStandby = fmt.Errorf("%w: the server is a standby, which takes no writes; name the primary, or all hosts with target_session_attrs=read-write", ErrUnsuitable)
)

// CheckNotPooled is nil when each connection is a session of its own. Settings, prepared
// statements and advisory locks belong to sessions: behind a pooler in transaction mode
// those of one client are another's.
//
// A pooler is told by what it gives away. Between its transactions a connection has no
// session there: another one gets it, or it gets another itself. Which of the two depends
// on the pooler's order and on what other clients do, so both are tried, several times.
func (j *Journal) CheckNotPooled(ctx context.Context) error {
	first, err := j.readDB.Conn(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer first.Close()
	second, err := j.readDB.Conn(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer second.Close()
	for range poolingRounds {
		if pooled, err := pooledRound(ctx, first, second); err != nil {
			return unavailable(err)
		} else if pooled {
			return ErrPooled
		}
	}
	return nil
}

const poolingRounds = 3

func pooledRound(ctx context.Context, ours, others *sql.Conn) (pooled bool, err error) {
	first, err := sessionOf(ctx, ours)
	if err != nil {
		return false, err
	}
	again, err := sessionOf(ctx, ours)
	if err != nil || again != first {
		return err == nil, err
	}
	tx, err := others.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // a standby has no other
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	theirs, err := sessionOf(ctx, tx)
	if err != nil || theirs == first {
		return err == nil, err
	}
	last, err := sessionOf(ctx, ours)
	return err == nil && last != first, err
}

// sessionOf names the session that answers, also among several servers.
func sessionOf(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (name string, err error) {
	err = q.QueryRowContext(ctx, `SELECT pg_backend_pid() || '.' || extract(epoch FROM backend_start) || '.' || extract(epoch FROM pg_postmaster_start_time()) FROM pg_stat_get_activity(pg_backend_pid())`).Scan(&name)
	return name, err
}
