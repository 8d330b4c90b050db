package journal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lib/pq/oid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// A table describes the columns of a table once. The parameters of the statements that
// write transitions and openings are derived from it, and tests compare it with the schema and with the
// statements that read.
type table struct {
	name    string
	columns []column
}

// A column is a column of a table, with the type of its values.
type column struct {
	name string
	typ  oid.Oid
}

var casesTable = table{"cases", []column{
	{"id", oid.T_uuid}, {"tenant", oid.T_text}, {"kind", oid.T_text}, {"subject", oid.T_text}, {"escrow_id", oid.T_int8},
	{"submission", oid.T_text}, {"content", oid.T_bytea},
	{"progression", oid.T_text}, {"reason_code", oid.T_text}, {"reason", oid.T_text}, {"lifecycle", oid.T_text}, {"adjudication", oid.T_text},
	{"generation", oid.T_int4}, {"asked", oid.T_int8}, {"moved", oid.T_int8},
	{"reserved", oid.T_int8}, {"released", oid.T_int8}, {"refunded", oid.T_int8},
	{"run_id", oid.T_uuid}, {"unknown_open", oid.T_int4}, {"epoch", oid.T_int4}, {"first_sent_at", oid.T_timestamptz},
	{"last_seq", oid.T_int8}, {"last_link", oid.T_bytea}, {"returned", oid.T_int8},
}}

var runsTable = table{"runs", []column{
	{"id", oid.T_uuid}, {"case_id", oid.T_uuid}, {"tenant", oid.T_text}, {"family", oid.T_text}, {"retry_key", oid.T_text},
	{"operation_key", oid.T_bytea}, {"queue", oid.T_text}, {"target", oid.T_text}, {"policy", oid.T_text}, {"payload", oid.T_bytea},
	{"parent_id", oid.T_uuid}, {"state", oid.T_text}, {"live", oid.T_bool}, {"letter", oid.T_text}, {"active", oid.T_bool},
	{"attempt_count", oid.T_int4}, {"budget_spent", oid.T_int4}, {"recoveries", oid.T_int4}, {"class", oid.T_text},
	{"token", oid.T_uuid}, {"last_transition", oid.T_uuid}, {"session_id", oid.T_uuid},
	{"cancel_requested", oid.T_bool}, {"cancel_by", oid.T_text}, {"cancel_reason", oid.T_text},
	{"due_at", oid.T_timestamptz}, {"dead_at", oid.T_timestamptz}, {"notification_number", oid.T_int4},
	{"reason", oid.T_text}, {"error_type", oid.T_text}, {"error_code", oid.T_text}, {"error_text", oid.T_text},
	{"outstanding_calls", oid.T__int4},
	{"remote", oid.T_bool}, {"priority", oid.T_int4}, {"expires_at", oid.T_timestamptz}, {"handed_back", oid.T_int4}, {"output", oid.T_bytea},
}}

var leasesTable = table{"leases", []column{
	{"run_id", oid.T_uuid}, {"tenant", oid.T_text}, {"worker", oid.T_text}, {"attempt", oid.T_int4}, {"at", oid.T_timestamptz},
	{"length_ms", oid.T_int4}, {"limit_ms", oid.T_int4}, {"version", oid.T_int8}, {"ended", oid.T_text}, {"fetch_key", oid.T_bytea}, {"principal", oid.T_text},
}}

var receiptsTable = table{"receipts", []column{
	{"case_id", oid.T_uuid}, {"seq", oid.T_int8}, {"run_id", oid.T_uuid}, {"tenant", oid.T_text}, {"source", oid.T_text},
	{"subtype", oid.T_text}, {"actor", oid.T_text}, {"at", oid.T_timestamptz}, {"body", oid.T_text}, {"link", oid.T_bytea},
}}

var escrowsTable = table{"escrows", []column{
	{"id", oid.T_int8}, {"tenant", oid.T_text}, {"reference", oid.T_text}, {"currency", oid.T_text}, {"held", oid.T_int8},
	{"committed", oid.T_int8}, {"breached", oid.T_int8},
}}

var operationsTable = table{"operations", []column{{"key", oid.T_bytea}, {"case_id", oid.T_uuid}, {"request", oid.T_bytea}}}

// parameters describe the arrays that a statement takes. Each array has one element per row of its table that the
// statement writes: those of receipts have one per receipt. A column is the name of an array in the statement, and
// the type of its elements.
type parameters []column

// of returns parameters for columns of the table, each named as its column, or otherwise:
// "COLUMN AS NAME". It panics if there is no such column.
func (t table) of(columns ...string) parameters {
	out := make(parameters, len(columns))
	for i, text := range columns {
		name, as, renamed := strings.Cut(text, " AS ")
		at := slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
		if at < 0 {
			panic(fmt.Sprintf("journal: %s has no column %s", t.name, name))
		}
		out[i] = t.columns[at]
		if renamed {
			out[i].name = as
		}
	}
	return out
}

// typeNames are the types of elements in SQL. An element that is an array itself is sent as text, since
// Postgres has no array whose elements are arrays of different lengths.
var typeNames = map[oid.Oid]string{
	oid.T_uuid: "uuid", oid.T_text: "text", oid.T_bytea: "bytea", oid.T_int4: "int", oid.T_int8: "bigint", oid.T_bool: "bool", oid.T_timestamptz: "timestamptz",
	oid.T__int4: "text",
}

// arrays returns the arguments of unnest, of which the first has the number first:
// $2::text[],$3::uuid[].
func (p parameters) arrays(first int) string {
	out := make([]string, len(p))
	for i, c := range p {
		out[i] = fmt.Sprintf("$%d::%s[]", first+i, typeNames[c.typ])
	}
	return strings.Join(out, ",")
}

// array returns one of those arguments, by the name of its parameter: $24::bytea[].
func (p parameters) array(name string, first int) string {
	at := slices.IndexFunc(p, func(c column) bool { return c.name == name })
	if at < 0 {
		panic(fmt.Sprintf("journal: no parameter %s", name))
	}
	return parameters{p[at]}.arrays(first + at)
}

// names returns the names, in order: body,case_id.
func (p parameters) names() string {
	out := make([]string, len(p))
	for i, c := range p {
		out[i] = c.name
	}
	return strings.Join(out, ",")
}

// layout returns the columns as which the parameters are sent in the binary format.
func (p parameters) layout() *pg.BinaryLayout {
	types := make([]oid.Oid, len(p))
	for i, c := range p {
		types[i] = c.typ
	}
	return pg.NewBinaryLayout(types...)
}

// assignments returns what an UPDATE sets to the parameters of the same names in the row of
// an alias: reason = b.reason, moved = b.moved.
func (p parameters) assignments(alias string) string {
	out := make([]string, len(p))
	for i, c := range p {
		out[i] = c.name + " = " + alias + "." + c.name
	}
	return strings.Join(out, ", ")
}

// The columns that transitions write.
var (
	// Of a case, by every transition.
	settlementParameters = casesTable.of("progression", "reason_code", "reason", "lifecycle", "moved", "reserved", "released", "refunded", "unknown_open", "first_sent_at")
	// Of a case, only by a submission or a fork.
	decisionParameters = casesTable.of("adjudication", "generation", "asked", "run_id", "epoch", "content", "submission")
	// Of a run, beside its state, token, session and reason.
	progressParameters = runsTable.of("letter", "attempt_count", "budget_spent", "recoveries", "class", "last_transition", "due_at", "dead_at", "error_type", "error_code", "error_text")
	// Of a new run.
	newRunParameters = slices.Concat(
		runsTable.of("id", "case_id", "tenant", "family", "retry_key", "operation_key", "queue", "target", "policy", "payload", "parent_id", "due_at", "remote", "priority", "expires_at", "last_transition"),
		operationsTable.of("request"))
	// Of a receipt: all.
	receiptParameters = receiptsTable.of(strings.Split(receiptColumns, ",")...)
)

const receiptColumns = stored.ReceiptColumns

// newRunColumns are the columns of a new run that have no default.
const newRunColumns = `id,case_id,tenant,family,retry_key,operation_key,queue,target,policy,payload,parent_id,state,live,active,due_at,remote,priority,expires_at,last_transition`

func addNewRun(c *pg.TextColumns, r background.Run) {
	c.ID(r.ID)
	c.ID(r.Case)
	c.Str(r.Tenant)
	c.Str(r.Family)
	c.Str(r.RetryKey)
	settles := r.Operation != [32]byte{}
	if settles {
		c.Bytes(r.Operation[:])
	} else {
		c.Null()
	}
	c.Str(r.Queue)
	c.Str(r.Target)
	c.Str(r.Policy.Encode())
	if settles {
		c.Null()
	} else {
		c.Bytes(r.Payload)
	}
	c.ID(r.Parent)
	c.Time(r.DueAt)
	c.Bool(r.Remote)
	c.Int(int64(r.Priority))
	c.Time(r.ExpiresAt)
	c.ID(r.LastTransition)
	if settles {
		c.Bytes(r.Payload)
	} else {
		c.Null()
	}
}

func addReceipts(c *pg.TextColumns, rs []receipts.Receipt) {
	for i := range rs {
		r := &rs[i]
		c.ID(r.Case)
		c.Int(r.Seq)
		c.ID(r.Run)
		c.Str(r.Tenant)
		c.Str(string(r.Source))
		c.Str(string(r.Subtype))
		c.Str(r.Actor)
		c.Time(r.At)
		c.Str(string(r.Body))
		c.Bytes(r.Link[:])
	}
}
