package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/internal/schema/stored"
)

// GuardsOff returns the names of what protects evidence and is not in force: a trigger as table.trigger, a function, a constraint or
// a unique index after its kind. Each is missing, switched off, or defined otherwise than by this program's version.
func GuardsOff(ctx context.Context, q Querier) ([]string, error) {
	off, err := stored.GuardsOff(ctx, q)
	return names(off), wrapped(err)
}

func names(guards []stored.Guard) (out []string) {
	for _, g := range guards {
		out = append(out, g.String())
	}
	return out
}

func wrapped(err error) error {
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// CheckGuards returns nil if the database refuses every change of evidence and of what it
// is bound to. Otherwise the error wraps ErrSchema and says in one line what to do.
func CheckGuards(ctx context.Context, q Querier) error {
	err := RecheckGuards(ctx, q)
	if errors.Is(err, ErrGuardsOff) {
		return fmt.Errorf("%w: %w", ErrSchema, err)
	}
	return err
}

// ErrGuardsOff means that the database allows changes of evidence, or of what it is bound
// to.
var ErrGuardsOff = errors.New("what protects evidence is not in force")

// RecheckGuards is CheckGuards for a process that has opened the database: what was switched off since can be
// restored. The error wraps ErrGuardsOff, and not ErrSchema.
func RecheckGuards(ctx context.Context, q Querier) error {
	off, err := stored.GuardsOff(ctx, q)
	return guardsError(off, err)
}

// RecheckTriggers is RecheckGuards for the triggers alone, which costs little.
func RecheckTriggers(ctx context.Context, q Querier) error {
	off, err := stored.TriggersOff(ctx, q)
	return guardsError(off, err)
}

func guardsError(off []stored.Guard, err error) error {
	switch {
	case err != nil:
		return unavailable(err)
	case len(off) > 0:
		return fmt.Errorf("%w (%s), as triggers are after a data-only restore, or if somebody changed it to change evidence; run: recourse receipts verify, examine what it reports, then run: recourse migrate", ErrGuardsOff, firstFew(names(off)))
	}
	return nil
}

// triggersLock keeps two processes from restoring guards at once.
const triggersLock = 0x7265636f75727365

// restoreGuards makes what protects evidence what this version has, one by one: it holds no table lock
// while it waits for another.
func restoreGuards(ctx context.Context, db *sql.DB) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, int64(triggersLock)); err != nil {
		return err
	}
	defer func() {
		_, unlock := conn.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, int64(triggersLock))
		err = errors.Join(err, unlock)
	}()
	off, err := stored.GuardsOff(ctx, conn)
	if err != nil {
		return err
	}
	for _, g := range off {
		if _, err := conn.ExecContext(ctx, g.RestoreSQL()); err != nil {
			return err
		}
	}
	return nil
}
