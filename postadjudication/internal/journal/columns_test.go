package journal

import (
	"encoding/binary"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// Each row that is added has one value for each parameter of its statement, in any format.
func TestARowHasAValueForEveryParameter(t *testing.T) {
	t.Parallel()
	ch := &chainedChange{
		Change:   &Change{Before: &Snapshot{}, After: &Snapshot{}},
		receipts: []receipts.Receipt{{}},
	}
	binaries := map[string]struct {
		parameters parameters
		add        func(c *pg.BinaryColumns)
	}{
		"narrow transition": {narrowTransitionParameters, func(c *pg.BinaryColumns) { addNarrowTransition(c, ch) }},
		"narrow open":       {narrowOpenParameters, func(c *pg.BinaryColumns) { addNarrowOpen(c, ch) }},
	}
	for name, b := range binaries {
		c := b.parameters.layout().Get()
		b.add(c)
		for i, arg := range c.Args() {
			array := arg.([]byte)
			if len(array) < 20 || binary.BigEndian.Uint32(array[12:]) != 1 {
				t.Errorf("%s: % x instead of one value of %s", name, array, b.parameters[i].name)
			}
		}
	}
	texts := map[string]struct {
		parameters parameters
		add        func(c *pg.TextColumns)
	}{
		"case":    {caseParameters, func(c *pg.TextColumns) { addCase(c, ch) }},
		"run":     {runParameters, func(c *pg.TextColumns) { addRun(c, &background.Run{}, &background.Run{}) }},
		"new run": {newRunParameters, func(c *pg.TextColumns) { addNewRun(c, background.Run{}) }},
		"receipt": {receiptParameters, func(c *pg.TextColumns) { addReceipts(c, ch.receipts) }},
	}
	for name, b := range texts {
		c := pg.NewTextColumns(len(b.parameters), 1)
		b.add(c)
		if args := c.Args(); c.Rows != 1 || slices.Contains(args, any("{}")) {
			t.Errorf("%s: %d rows: %v", name, c.Rows, args)
		}
	}
	args := wideOpenArgs([]*chainedChange{{Change: &Change{After: &Snapshot{}}, receipts: []receipts.Receipt{{}}}})
	if want := len(wideOpenParameters) + len(newRunParameters) + len(receiptParameters); len(args) != want || slices.Contains(args, "{}") {
		t.Errorf("open: %d arrays of %d: %v", len(args), want, args)
	}
}

// A value is sent as the type that its parameter is declared with.
func TestParametersAreNumberedAndTyped(t *testing.T) {
	t.Parallel()
	p := slices.Concat(casesTable.of("id AS case_id", "moved"), runsTable.of("outstanding_calls"))
	for want, got := range map[string]string{
		"$3::uuid[],$4::bigint[],$5::text[]":                       p.arrays(3),
		"case_id,moved,outstanding_calls":                          p.names(),
		"moved = b.moved, outstanding_calls = b.outstanding_calls": p[1:].assignments("b"),
		"$4::bigint[]": p.array("moved", 3),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	numbers := regexp.MustCompile(`\$[0-9]+`)
	for name, statement := range map[string]struct {
		text string
		last int
	}{
		"wide open": {wideOpenSQL, 45}, "narrow open": {narrowOpenSQL, 35}, "wide transition": {wideTransitionSQL, 78}, "narrow transition": {narrowTransitionSQL, 40},
		"lease claim": {leaseClaimSQL, 44}, "lease end": {leaseEndSQL, 41},
	} {
		used := map[string]bool{}
		for _, n := range numbers.FindAllString(statement.text, -1) {
			used[n] = true
		}
		if len(used) != statement.last {
			t.Errorf("%s uses %d parameters, want %d", name, len(used), statement.last)
		}
	}
}

// camel finds the beginnings of words in the name of a field.
var camel = regexp.MustCompile(`([a-z])([A-Z])`)

// A snapshot reads every column of runs and cases, each into the field of its name.
func TestASnapshotReadsEveryColumn(t *testing.T) {
	t.Parallel()
	var row snapshotRow
	fields := map[any]string{} // by address
	v := reflect.ValueOf(&row).Elem()
	for i := range v.NumField() {
		name := strings.ToLower(camel.ReplaceAllString(strings.Replace(v.Type().Field(i).Name, "ID", "Id", 1), "${1}_${2}"))
		fields[v.Field(i).Addr().Interface()] = name
	}
	list := regexp.MustCompile(`\([^()]*\)|\s+`).ReplaceAllStringFunc(snapshotColumns, func(s string) string {
		return strings.NewReplacer(",", ";", "\n", " ").Replace(s)
	})
	list = strings.ReplaceAll(list, "\n", " ")
	read := map[string]bool{}
	var names []string
	for _, expression := range strings.Split(list, ",") {
		expression = strings.TrimSpace(expression)
		for _, c := range regexp.MustCompile(`\b[rc]\.[a-z_]+`).FindAllString(expression, -1) {
			read[c] = true
		}
		name := expression[strings.LastIndexAny(expression, " .")+1:]
		names = append(names, name)
	}
	names = append(names, "own_receipt")
	destinations := row.destinations()
	if len(destinations) != len(names) || len(fields) != len(names) {
		t.Fatalf("%d columns, %d destinations, %d fields", len(names), len(destinations), len(fields))
	}
	for i, d := range destinations {
		if fields[d] != names[i] {
			t.Errorf("column %s is read into %s", names[i], fields[d])
		}
	}
	// Of the state, or as in the run; and what nobody decides on.
	derived := []string{"r.live", "r.active", "c.id", "c.tenant", "r.output"}
	for alias, described := range map[string]table{"r.": runsTable, "c.": casesTable} {
		for _, c := range described.columns {
			if name := alias + c.name; read[name] == slices.Contains(derived, name) {
				t.Errorf("%s: read %v", name, read[name])
			}
		}
	}
}
