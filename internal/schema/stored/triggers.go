package stored

import (
	"context"
	"fmt"
	"slices"
)

// Trigger is a trigger that refuses changes of evidence, or of what it is bound to.
type Trigger struct{ Table, Name, Event, Action string }

// Triggers fire ALWAYS, even where session_replication_role disables ordinary
// triggers. UPDATE OF fires only for statements that name the column; those that write
// transitions name none of these. The triggers are per statement, which costs nothing: a
// single one per row makes Postgres read every updated row again.
var Triggers = []Trigger{
	{"receipts", "append_only", "BEFORE UPDATE OR DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite()"},
	{"returns", "append_only", "BEFORE UPDATE OR DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite()"},
	{"event_log", "append_only", "BEFORE UPDATE OR DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite()"},
	{"escrows", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"cases", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"runs", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"operations", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"operations", "never_changed", "BEFORE UPDATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"runs", "never_changed", "BEFORE UPDATE OF id, case_id, tenant, family, retry_key, operation_key, queue, target, parent_id, remote, priority, expires_at", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"runs", "payload_kept", "BEFORE UPDATE OF payload", "STATEMENT EXECUTE FUNCTION recourse.refuse_payload()"},
	{"cases", "never_changed", "BEFORE UPDATE OF id, tenant, kind, subject, escrow_id", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"escrows", "never_changed", "BEFORE UPDATE OF id, tenant, reference", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"escrows", "held_kept", "AFTER UPDATE OF held, currency", "ROW EXECUTE FUNCTION recourse.refuse_other_sum()"},
}

// CreateSQL returns the SQL that creates or replaces the trigger and enables it.
func (g Trigger) CreateSQL() string {
	return fmt.Sprintf("CREATE OR REPLACE TRIGGER %s %s ON recourse.%s FOR EACH %s; ALTER TABLE recourse.%s ENABLE ALWAYS TRIGGER %s",
		g.Name, g.Event, g.Table, g.Action, g.Table, g.Name)
}

const triggersSQL = `SELECT c.relname || '.' || t.tgname, t.tgenabled FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'recourse' AND NOT t.tgisinternal ORDER BY 1`

// DisabledTriggers returns the Triggers that are missing or not enabled ALWAYS, and the other
// triggers of the schema that are disabled, each as table.trigger.
func DisabledTriggers(ctx context.Context, q Querier) ([]string, error) {
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
	for _, g := range Triggers {
		name := g.Table + "." + g.Name
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
