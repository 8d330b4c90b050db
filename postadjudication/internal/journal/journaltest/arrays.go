package journaltest

import (
	"database/sql"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// An ArrayStatement is a statement that takes arrays.
type ArrayStatement struct {
	SQL  string
	Pool Pool
	Args func(n int) []any // with n elements in each array
}

// Pool says how the server plans the statements of a pool.
type Pool []map[string]string

// The pools, by the settings with which they may plan a statement.
var (
	// JournalPool has the settings of the journal's own statements: their plans are generic, whether they are
	// prepared or not.
	JournalPool = Pool{pg.PlannerSettings}
	// ReadPool has no settings. A statement that is sent once is planned for its arguments; one that is prepared may
	// get a generic plan from its sixth execution on.
	ReadPool = Pool{{"plan_cache_mode": "force_generic_plan"}, {"plan_cache_mode": "force_custom_plan"}}
	// AnyPool is both.
	AnyPool = slices.Concat(JournalPool, ReadPool)
)

// PoolOf returns the settings of the sessions of a pool that sets how plans are cached.
func PoolOf(t testing.TB, db *sql.DB) Pool {
	t.Helper()
	rows, err := db.Query(`SELECT name, setting FROM pg_settings WHERE source = 'session'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	settings := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			t.Fatal(err)
		}
		settings[name] = value
	}
	if err := rows.Err(); err != nil || settings["plan_cache_mode"] == "" {
		t.Fatalf("%v, %v", settings, err)
	}
	return Pool{settings}
}

// Few and Many are the numbers of elements with which statements are tried.
const (
	Few  = 300
	Many = 10 * Few
)

// maxWork is the most that a statement may do for each element, see PlanNode.work.
const maxWork = 1000

// CheckReadsInProportion checks that a statement reads at most twelve times as many rows and blocks for Many elements
// as for Few, and compares rows with at most twelve times as many elements, maxWork for each. It may read tables of so
// many rows as a whole, ten times, instead: it reads no more for more elements.
func CheckReadsInProportion(t testing.TB, db *sql.DB, name string, s ArrayStatement, tableRows float64) {
	t.Helper()
	for _, settings := range s.Pool {
		plan, _, lengths := explain(t, db, settings, s.SQL, s.Args(Few))
		few := plan.work(lengths)
		plan, text, lengths := explain(t, db, settings, s.SQL, s.Args(Many))
		many := plan.work(lengths)
		if many > min(12*few, maxWork*Many)+10*tableRows {
			t.Errorf("%s, %v: %.0f rows, blocks and comparisons for %d elements, %.0f for %d\n%s", name, settings, few, Few, many, Many, text)
		}
	}
}

// CheckAllReadInProportion is CheckReadsInProportion of statements by name: before the server has statistics, then with
// them, and then for what insertNewer has inserted since. The server expects no row of that where it plans for arguments.
func CheckAllReadInProportion(t testing.TB, owner, plans *sql.DB, tried map[string]ArrayStatement, tableRows float64, insertNewer ...func()) {
	t.Helper()
	check := func(when string, of func(settings map[string]string) bool) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(tried)) {
			s := tried[name]
			s.Pool = slices.DeleteFunc(slices.Clone(s.Pool), func(settings map[string]string) bool { return !of(settings) })
			CheckReadsInProportion(t, plans, name+", "+when, s, tableRows)
		}
	}
	all := func(map[string]string) bool { return true }
	check("without statistics", all)
	if _, err := owner.Exec(`ANALYZE`); err != nil {
		t.Fatal(err)
	}
	check("with statistics", all)
	for _, insert := range insertNewer {
		insert()
		check("with statistics from before", func(settings map[string]string) bool { return settings["plan_cache_mode"] == "force_custom_plan" })
	}
}

// Arrays returns arrays of expressions over the first n rows of a table or query, as arguments of a statement.
func Arrays(t testing.TB, db *sql.DB, n int, from string, expressions ...string) []any {
	t.Helper()
	texts, into, out := make([]string, len(expressions)), make([]any, len(expressions)), make([]any, len(expressions))
	for i := range texts {
		into[i] = &texts[i]
	}
	query := `SELECT array_agg(` + strings.Join(expressions, `)::text, array_agg(`) + `)::text FROM (SELECT * FROM ` + from + ` AS rows LIMIT $1) q`
	if err := db.QueryRow(query, n).Scan(into...); err != nil {
		t.Fatalf("%v: %s", err, query)
	}
	for i := range texts {
		out[i] = texts[i]
	}
	return out
}

// takesArray matches text of a statement that takes an array, or is followed by one.
var takesArray = regexp.MustCompile(`(?i)\b(any|all) ?\(\s*(\$|\?|$)|\bunnest\(\s*(\$|$)|\bjsonb_to_recordset\(\s*(\$|$)|\$\d+::\w+\[\]`)

// CheckArrayStatementsAreTried checks that each declaration of a package with text of a statement that takes arrays is
// tried, or an exception. Exceptions say why, and declarations have their names, those of methods without the type; after
// a comma, the name of what is tried says which of the declaration's statements it is.
func CheckArrayStatementsAreTried(t testing.TB, dir fs.FS, tried map[string]ArrayStatement, exceptions map[string]string) {
	t.Helper()
	found := ArrayDeclarations(t, dir)
	declarations := map[string]bool{}
	for name := range tried {
		declaration, _, _ := strings.Cut(name, ", ")
		declarations[declaration] = true
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !declarations[name] && exceptions[name] == "" {
			t.Errorf("%s takes an array, and is neither tried with many elements nor an exception", name)
		}
	}
	for name := range exceptions {
		if declarations[name] || !found[name] {
			t.Errorf("the exception %s is tried, or takes no array", name)
		}
	}
}

// ArrayDeclarations returns the names of the declarations of a package with text that matches takesArray.
func ArrayDeclarations(t testing.TB, dir fs.FS) map[string]bool {
	t.Helper()
	files, err := fs.Glob(dir, "*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				found[f.Name.Name] = found[f.Name.Name] || hasArray(f)
				continue
			}
			for _, spec := range d.(*ast.GenDecl).Specs {
				values, ok := spec.(*ast.ValueSpec)
				for i := 0; ok && i < len(values.Values); i++ {
					found[values.Names[i].Name] = hasArray(values.Values[i])
				}
			}
		}
	}
	maps.DeleteFunc(found, func(_ string, takes bool) bool { return !takes })
	return found
}

// hasArray reports whether a text below a node matches takesArray.
func hasArray(n ast.Node) (has bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			s, err := strconv.Unquote(text.Value)
			has = has || err == nil && takesArray.MatchString(s)
		}
		return true
	})
	return has
}
