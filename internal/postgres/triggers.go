package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// evidenceTrigger is a trigger that refuses changes of evidence, or of what it is bound to.
type evidenceTrigger struct{ table, name, event, action string }

// evidenceTriggers fire ALWAYS, even where session_replication_role disables ordinary
// triggers. UPDATE OF fires only for statements that name the column; those that write
// transitions name none of these. The triggers are per statement, which costs nothing: a
// single one per row makes Postgres read every updated row again.
var evidenceTriggers = []evidenceTrigger{
	{"receipts", "append_only", "BEFORE UPDATE OR DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite()"},
	{"event_log", "append_only", "BEFORE UPDATE OR DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite()"},
	{"escrows", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"cases", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"runs", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"operations", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"operations", "never_changed", "BEFORE UPDATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"runs", "never_changed", "BEFORE UPDATE OF id, case_id, tenant, family, retry_key, operation_key, queue, target, parent_id", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"runs", "payload_kept", "BEFORE UPDATE OF payload", "STATEMENT EXECUTE FUNCTION recourse.refuse_payload()"},
	{"cases", "never_changed", "BEFORE UPDATE OF id, tenant, kind, subject, escrow_id", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"escrows", "never_changed", "BEFORE UPDATE OF id, tenant, reference", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"escrows", "held_kept", "AFTER UPDATE OF held, currency", "ROW EXECUTE FUNCTION recourse.refuse_other_sum()"},
}

// createSQL returns the SQL that creates or replaces the trigger and enables it.
func (g evidenceTrigger) createSQL() string {
	return fmt.Sprintf("CREATE OR REPLACE TRIGGER %s %s ON recourse.%s FOR EACH %s; ALTER TABLE recourse.%s ENABLE ALWAYS TRIGGER %s",
		g.name, g.event, g.table, g.action, g.table, g.name)
}

const triggersSQL = `SELECT c.relname || '.' || t.tgname, t.tgenabled FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'recourse' AND NOT t.tgisinternal ORDER BY 1`

// disabledTriggers returns the evidence triggers that are missing or not enabled ALWAYS,
// and the other triggers of the schema that are disabled, each as table.trigger.
func disabledTriggers(ctx context.Context, q querier) ([]string, error) {
	rows, err := q.QueryContext(ctx, triggersSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	state := map[string]string{}
	for rows.Next() {
		var name, enabled string
		if err := rows.Scan(&name, &enabled); err != nil {
			return nil, err
		}
		state[name] = enabled
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	var out []string
	for _, g := range evidenceTriggers {
		name := g.table + "." + g.name
		if state[name] != "A" {
			out = append(out, name)
		}
		delete(state, name)
	}
	for name, enabled := range state {
		if enabled != "O" && enabled != "A" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// DisabledTriggers returns the triggers that are not in force, each as table.trigger: those
// that refuse changes of evidence, and others that are disabled.
func (d *Database) DisabledTriggers(ctx context.Context) ([]string, error) {
	off, err := disabledTriggers(ctx, d.readDB)
	if err != nil {
		return nil, unavailable(err)
	}
	return off, nil
}

// CheckTriggers returns nil if the database refuses every change of evidence and of what it
// is bound to. Otherwise the error wraps ErrSchema and says in one line what to do.
func (d *Database) CheckTriggers(ctx context.Context) error {
	err := d.RecheckTriggers(ctx)
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
func (d *Database) RecheckTriggers(ctx context.Context) error {
	off, err := d.DisabledTriggers(ctx)
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
	off, err := disabledTriggers(ctx, conn)
	if err != nil {
		return err
	}
	for _, name := range off {
		table, trigger, _ := strings.Cut(name, ".")
		statement := fmt.Sprintf("ALTER TABLE recourse.%s ENABLE TRIGGER %s", table, trigger)
		if i := slices.IndexFunc(evidenceTriggers, func(g evidenceTrigger) bool { return g.table == table && g.name == trigger }); i >= 0 {
			statement = evidenceTriggers[i].createSQL()
		}
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
