package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// evidenceTrigger is a trigger that refuses a change of evidence, or of what it binds.
type evidenceTrigger struct{ table, name, event, action string }

// evidenceTriggers fire ALWAYS, also where session_replication_role turns ordinary triggers off.
// UPDATE OF fires only for statements that name the column. Those that move runs and
// cases name none of these: a guard of theirs costs nothing as long as it is one a
// statement, for a single one a row makes Postgres read every row that is updated again.
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

// createSQL is the SQL that puts the guard in force, whether or not it is there.
func (g evidenceTrigger) createSQL() string {
	return fmt.Sprintf("CREATE OR REPLACE TRIGGER %s %s ON recourse.%s FOR EACH %s; ALTER TABLE recourse.%s ENABLE ALWAYS TRIGGER %s",
		g.name, g.event, g.table, g.action, g.table, g.name)
}

const triggersSQL = `SELECT c.relname || '.' || t.tgname, t.tgenabled FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'recourse' AND NOT t.tgisinternal ORDER BY 1`

// disabledTriggers names the guards that are not in force, and the other triggers of the schema
// that are turned off, each as table.trigger.
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

// DisabledTriggers names the triggers that are not in force, each as table.trigger: those that
// refuse changes of evidence, and others that are turned off.
func (j *Journal) DisabledTriggers(ctx context.Context) ([]string, error) {
	off, err := disabledTriggers(ctx, j.readDB)
	if err != nil {
		return nil, unavailable(err)
	}
	return off, nil
}

// CheckTriggers is nil when the database refuses every change of evidence and of what it binds.
// Else the error wraps ErrSchema and says in one line what to do.
func (j *Journal) CheckTriggers(ctx context.Context) error {
	err := j.RecheckTriggers(ctx)
	if errors.Is(err, ErrTriggersOff) {
		return fmt.Errorf("%w: %w", ErrSchema, err)
	}
	return err
}

// ErrTriggersOff means that the database takes changes of evidence, or of what it binds.
var ErrTriggersOff = errors.New("triggers are not in force")

// RecheckTriggers is Guarded for a process that has opened the database: triggers that were turned
// off since can be turned on again. The error wraps ErrTriggersOff, and not ErrSchema.
func (j *Journal) RecheckTriggers(ctx context.Context) error {
	off, err := j.DisabledTriggers(ctx)
	switch {
	case err != nil:
		return err
	case len(off) > 0:
		return fmt.Errorf("%w (%s), as after a data-only restore or where somebody turned them off to change evidence; run: recourse receipts verify, and once that was looked into: recourse migrate", ErrTriggersOff, strings.Join(off, ", "))
	}
	return nil
}

// triggersLock keeps two processes from putting guards in force at once.
const triggersLock = 0x7265636f75727365

// enableTriggers puts all guards in force, and turns on the other triggers of the schema, table
// by table: no table is locked while another one is waited for.
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
