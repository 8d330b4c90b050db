package stored

import (
	"cmp"
	"context"
	_ "embed" // the definitions
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A Guard protects evidence, or what it is bound to: a trigger, a function, a constraint or a unique index of the schema.
type Guard struct {
	Kind       string // trigger, function, constraint or index
	Name       string // of a trigger or constraint: table.name
	Definition string // as this version has it: the SQL that creates it
}

// String names the guard: a trigger as table.trigger, the others after their kind.
func (g Guard) String() string {
	if g.Kind == "trigger" {
		return g.Name
	}
	return g.Kind + " " + g.Name
}

// RestoreSQL returns the SQL that makes the guard what this version has. The rows that a constraint finds are not checked.
func (g Guard) RestoreSQL() string {
	table, name, _ := strings.Cut(g.Name, ".")
	switch g.Kind {
	case "constraint":
		return "ALTER TABLE recourse." + table + " DROP CONSTRAINT IF EXISTS " + name + "; " + g.Definition
	case "index":
		return "DROP INDEX IF EXISTS recourse." + g.Name + "; " + g.Definition
	}
	return g.Definition
}

// What ReadGuards reads. Only with these settings, which end with the statement, do the server's own functions always write names
// with their schema and spell them alike. goose makes the table of versions.
const (
	triggerGuardsSQL = `
WITH path AS MATERIALIZED (SELECT set_config('search_path', 'pg_catalog', true), set_config('quote_all_identifiers', 'off', true), set_config('standard_conforming_strings', 'on', true)), tables AS (
  SELECT c.oid, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'recourse' AND c.relname <> 'schema_version'
)
SELECT 'trigger', c.relname || '.' || t.tgname, replace(pg_catalog.pg_get_triggerdef(t.oid), 'CREATE TRIGGER', 'CREATE OR REPLACE TRIGGER') || '; ALTER TABLE recourse.' || c.relname
  || CASE t.tgenabled WHEN 'A' THEN ' ENABLE ALWAYS' WHEN 'R' THEN ' ENABLE REPLICA' WHEN 'D' THEN ' DISABLE' ELSE ' ENABLE' END || ' TRIGGER ' || t.tgname
FROM path, pg_catalog.pg_trigger t JOIN tables c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal`

	allGuardsSQL = triggerGuardsSQL + `
UNION ALL SELECT 'constraint', c.relname || '.' || k.conname, 'ALTER TABLE recourse.' || c.relname || ' ADD CONSTRAINT ' || k.conname || ' ' || replace(pg_catalog.pg_get_constraintdef(k.oid), ' NOT VALID', '')
  || CASE k.contype WHEN 'c' THEN ' NOT VALID' ELSE '' END
FROM path, pg_catalog.pg_constraint k JOIN tables c ON c.oid = k.conrelid WHERE k.contype IN ('c', 'f', 'p', 'u', 'x')
UNION ALL SELECT 'function', p.proname || '(' || pg_catalog.pg_get_function_identity_arguments(p.oid) || ')', pg_catalog.pg_get_functiondef(p.oid)
FROM path, pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'recourse' AND p.prokind = 'f'
UNION ALL SELECT 'index', i.relname, pg_catalog.pg_get_indexdef(x.indexrelid)
FROM path, pg_catalog.pg_index x JOIN tables c ON c.oid = x.indrelid JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
WHERE x.indisunique AND x.indisvalid AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = x.indexrelid)`
)

// ReadGuards reads the triggers, functions, constraints and unique indexes of the schema as they are now.
func ReadGuards(ctx context.Context, q Querier) ([]Guard, error) {
	return readGuards(ctx, q, allGuardsSQL)
}

func readGuards(ctx context.Context, q Querier, query string) (out []Guard, err error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var g Guard
		if err := rows.Scan(&g.Kind, &g.Name, &g.Definition); err != nil {
			return nil, err
		}
		g.Definition = strings.TrimSpace(g.Definition)
		out = append(out, g)
	}
	return out, rows.Err()
}

// GuardsOff returns the guards that the database lacks, has switched off, or defines otherwise than this version does.
func GuardsOff(ctx context.Context, q Querier) ([]Guard, error) {
	have, err := ReadGuards(ctx, q)
	if err != nil {
		return nil, err
	}
	return missingGuards(have, guards()), nil
}

// TriggersOff is GuardsOff for the triggers alone, which takes a tenth of the time.
func TriggersOff(ctx context.Context, q Querier) ([]Guard, error) {
	have, err := readGuards(ctx, q, triggerGuardsSQL)
	if err != nil {
		return nil, err
	}
	return missingGuards(have, slices.DeleteFunc(slices.Clone(guards()), func(g Guard) bool { return g.Kind != "trigger" })), nil
}

func missingGuards(have, want []Guard) (out []Guard) {
	type name struct{ kind, name string }
	definitions := make(map[name]string, len(have))
	for _, g := range have {
		definitions[name{g.Kind, g.Name}] = g.Definition
	}
	for _, g := range want {
		definition, found := definitions[name{g.Kind, g.Name}]
		if !found || definition != g.Definition && g.normalize(definition) != g.normalize(g.Definition) {
			out = append(out, g)
		}
	}
	return out
}

// notation is what versions of the server may write differently in the definition of a constraint or an index.
var notation = regexp.MustCompile(`::[a-z ]+(\[\])?|[\s()"]`)

// normalize returns a definition of the guard as each version of the server writes it.
func (g Guard) normalize(definition string) string {
	if g.Kind == "constraint" || g.Kind == "index" {
		return notation.ReplaceAllString(definition, "")
	}
	return definition
}

// guardDefinitions are the guards that migrations define, each after a line with its kind and name. A test compares them with a
// database that was just migrated.
//
//go:embed guards.sql
var guardDefinitions string

const guardHeader = "--- "

// guards returns what protects evidence in this version: Triggers, and what migrations define. Functions are before the triggers that call them.
var guards = sync.OnceValue(func() (out []Guard) {
	for text := range strings.SplitSeq("\n"+guardDefinitions, "\n"+guardHeader) {
		header, definition, _ := strings.Cut(text, "\n")
		if kind, name, found := strings.Cut(header, " "); found {
			out = append(out, Guard{kind, name, strings.TrimSpace(definition)})
		}
	}
	for _, t := range Triggers {
		out = append(out, Guard{"trigger", t.Table + "." + t.Name, t.CreateSQL()})
	}
	return sortGuards(out)
})

func sortGuards(all []Guard) []Guard {
	slices.SortFunc(all, func(a, b Guard) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return all
}

// EncodeGuards returns the text of guards.sql for the guards of a database that was just migrated.
func EncodeGuards(all []Guard) string {
	var out strings.Builder
	for _, g := range sortGuards(slices.Clone(all)) {
		if !slices.ContainsFunc(Triggers, func(t Trigger) bool { return g.Name == t.Table+"."+t.Name }) {
			out.WriteString(guardHeader + g.Kind + " " + g.Name + "\n" + g.Definition + "\n")
		}
	}
	return out.String()
}
