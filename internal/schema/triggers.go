package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/internal/schema/stored"
)

// DisabledTriggers returns the triggers that are not in force, each as table.trigger: those
// that refuse changes of evidence, and others that are disabled.
func DisabledTriggers(ctx context.Context, q Querier) ([]string, error) {
	off, err := stored.DisabledTriggers(ctx, q)
	if err != nil {
		return nil, unavailable(err)
	}
	return off, nil
}

// CheckTriggers returns nil if the database refuses every change of evidence and of what it
// is bound to. Otherwise the error wraps ErrSchema and says in one line what to do.
func CheckTriggers(ctx context.Context, q Querier) error {
	err := RecheckTriggers(ctx, q)
	if errors.Is(err, ErrTriggersOff) {
		return fmt.Errorf("%w: %w", ErrSchema, err)
	}
	return err
}

// ErrTriggersOff means that the database allows changes of evidence, or of what it is bound
// to.
var ErrTriggersOff = errors.New("triggers are not in force")

// RecheckTriggers is CheckTriggers for a process that has opened the database: triggers
// that were disabled since can be enabled again. The error wraps ErrTriggersOff, and not
// ErrSchema.
func RecheckTriggers(ctx context.Context, q Querier) error {
	off, err := DisabledTriggers(ctx, q)
	switch {
	case err != nil:
		return err
	case len(off) > 0:
		return fmt.Errorf("%w (%s), as after a data-only restore, or if somebody disabled them to change evidence; run: recourse receipts verify, examine what it reports, then run: recourse migrate", ErrTriggersOff, strings.Join(off, ", "))
	}
	return nil
}

// triggersLock keeps two processes from enabling triggers at once.
const triggersLock = 0x7265636f75727365

// enableTriggers enables all triggers of the schema, table by table: it holds no table lock
// while it waits for another.
func enableTriggers(ctx context.Context, db *sql.DB) (err error) {
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
	off, err := stored.DisabledTriggers(ctx, conn)
	if err != nil {
		return err
	}
	for _, name := range off {
		table, trigger, _ := strings.Cut(name, ".")
		statement := fmt.Sprintf("ALTER TABLE recourse.%s ENABLE TRIGGER %s", table, trigger)
		if i := slices.IndexFunc(stored.Triggers, func(g stored.Trigger) bool { return g.Table == table && g.Name == trigger }); i >= 0 {
			statement = stored.Triggers[i].CreateSQL()
		}
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
