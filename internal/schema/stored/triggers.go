package stored

import "fmt"

// Trigger is a trigger that refuses changes of evidence, or of what it is bound to. Its Event and Action are spelled as the server spells them.
type Trigger struct{ Table, Name, Event, Action string }

// Triggers fire ALWAYS, even where session_replication_role disables ordinary
// triggers. UPDATE OF fires only for statements that name the column; those that write
// transitions name none of these. The triggers are per statement, which costs nothing: a
// single one per row makes Postgres read every updated row again.
var Triggers = []Trigger{
	{"receipts", "append_only", "BEFORE DELETE OR UPDATE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite()"},
	{"receipts", "appended_with_head", "BEFORE INSERT", "ROW WHEN ((((new.seq > 1) OR (new.subtype <> 'submitted'::text) OR (NOT isfinite(new.at))) AND (NOT has_column_privilege('recourse.cases'::text, 'last_seq'::text, 'UPDATE'::text)))) EXECUTE FUNCTION recourse.refuse_append()"},
	{"cases", "opened", "BEFORE INSERT", "ROW WHEN ((NOT has_column_privilege('recourse.cases'::text, 'last_seq'::text, 'UPDATE'::text))) EXECUTE FUNCTION recourse.check_opened_case()"},
	{"runs", "opened", "BEFORE INSERT", "ROW WHEN ((NOT has_column_privilege('recourse.cases'::text, 'last_seq'::text, 'UPDATE'::text))) EXECUTE FUNCTION recourse.check_opened_run()"},
	{"outbox", "opened", "AFTER INSERT", "ROW WHEN ((NOT has_column_privilege('recourse.cases'::text, 'last_seq'::text, 'UPDATE'::text))) EXECUTE FUNCTION recourse.check_opened_place()"},
	{"returns", "append_only", "BEFORE DELETE OR UPDATE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite()"},
	{"event_log", "append_only", "BEFORE DELETE OR UPDATE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite()"},
	{"escrows", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"cases", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"runs", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"operations", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"operations", "never_changed", "BEFORE UPDATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"runs", "never_changed", "BEFORE UPDATE OF id, case_id, tenant, family, retry_key, operation_key, queue, target, parent_id, remote, priority, expires_at", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"runs", "payload_kept", "BEFORE UPDATE OF payload", "STATEMENT EXECUTE FUNCTION recourse.refuse_payload()"},
	{"cases", "never_changed", "BEFORE UPDATE OF id, tenant, kind, subject, escrow_id", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"escrows", "never_changed", "BEFORE UPDATE OF id, tenant, reference", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"installation", "never_changed", "BEFORE UPDATE OF one, id, demonstration", "STATEMENT EXECUTE FUNCTION recourse.refuse_change()"},
	{"installation", "never_removed", "BEFORE DELETE OR TRUNCATE", "STATEMENT EXECUTE FUNCTION recourse.refuse_removal()"},
	{"escrows", "held_kept", "AFTER UPDATE OF held, currency", "ROW EXECUTE FUNCTION recourse.refuse_other_sum()"},
}

// CreateSQL returns the SQL that creates or replaces the trigger and enables it.
func (g Trigger) CreateSQL() string {
	return fmt.Sprintf("CREATE OR REPLACE TRIGGER %s %s ON recourse.%s FOR EACH %s; ALTER TABLE recourse.%s ENABLE ALWAYS TRIGGER %s",
		g.Name, g.Event, g.Table, g.Action, g.Table, g.Name)
}
