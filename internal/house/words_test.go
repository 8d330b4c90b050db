package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// coined are words that the repository once used in a sense of its own, with the words of the
// field for it. They stand nowhere: in no identifier, comment or text.
var coined = map[string]string{
	"bell": "notification", "bells": "notifications",
	"ring": "notify", "rings": "notifies", "ringing": "notifying", "rang": "notified", "rung": "notified",
	"mirror": "archived task", "mirrors": "archived tasks", "mirrored": "archived", "unmirror": "remove the archived task",
	"brake": "circuit breaker", "brakes": "circuit breakers", "braker": "breaker loop", "braked": "paused by a circuit breaker", "braking": "opening",
	"easing": "half-open", "eased": "half-open",
	"crew":  "worker pool",
	"ghost": "lost delivery", "ghosts": "lost deliveries",
	"bereave": "report lost", "bereaves": "reports lost", "bereaved": "reported lost", "mislaid": "lost locally",
	"organ": "background loop", "organs": "background loops",
	"bury": "mark lost", "buries": "marks lost", "buried": "marked lost",
	"engaged": "in flight", "engagement": "in-flight run", "engagements": "in-flight runs",
	"stranded": "orphaned task", "unheard": "outstanding call",
	"seal": "chain", "seals": "chains", "sealed": "chained", "sealing": "chaining",
	"sighting": "observation", "sightings": "observations", "outofband": "tampering",
	"kase": "case", "desked": "annotated", "unwarned": "unannounced", "overfull": "over the count", "untold": "not yet reported",
	"ailing": "failing", "waker": "wake-up listener", "dunno": "unknown", "cure": "remedy", "cures": "remedies",
}

// coinedNames are ordinary English, and coined as identifiers. They stand in no identifier but
// the name of a test, which is a sentence. The names in the tag of a field, and what a guide
// has between backticks, are identifiers.
var coinedNames = map[string]string{
	"hush": "drain",
	"tell": "report, log, publish or append", "tells": "reports", "told": "reported", "teller": "reporter",
	"hear": "receive", "hears": "receives", "heard": "received",
	"hurry": "request a full scan", "thorough": "full scan", "calm": "short scan",
	"enlist": "register", "resign": "unregister", "dismiss": "remove",
	"touch": "tampering", "saw": "record", "doubt": "claim timeout", "doubted": "timed out", "inquire": "look up",
	"clerk": "backend", "office": "backend", "desk": "annotations", "shelf": "retention scope",
	"ruler": "replay runner", "ruling": "rule action", "standing": "status", "siblings": "runs of the case", "sibling": "run of the case",
	"pulled": "open", "parked": "paused", "crowd": "window", "silence": "idle timeout",
	"shape": "facet group", "shapes": "facet groups", "grams": "trigrams", "walking": "ordered scan", "glance": "bounded scan", "lying": "heap-order scan",
	"lane": "slow path", "lanes": "slow paths", "fear": "schedule", "muted": "head recorder", "promoter": "wake-up timer",
}

// An allowance is for a word that has to stay for a time, or means something else.
type allowance struct {
	word  string // as coined or coinedNames have it
	where string // a file or a folder; empty: anywhere
	form  string // what the word must stand in, whole: a pattern
	sql   bool   // only in texts of SQL and in the tags of fields
	why   string
}

// sqlText is a text that has words of SQL, or a column of a table in it.
var sqlText = regexp.MustCompile(`\b(SELECT|UPDATE|INSERT|DELETE|FROM|WHERE|AND|OR|SET|VALUES|RETURNING|CASE|CREATE|ALTER|JOIN|ORDER BY|AS|INTO|TABLE)\b|\b[a-z]\.[a-z_]+( =|,)|^\x60db:|json:"`)

// tagNames are the names in the tag of a field that the field has outside of Go.
var tagNames = regexp.MustCompile(`\b(?:json|db|yaml|query|path|header):"([^",]+)`)

const storedName = "stored in receipts, cases and settings, or read by programs of users"

var allowances = []allowance{
	{"kase", "", `(?:\w+\.)?kase`, true, "case is a word of SQL"},
	{"desk", "cmd/recourse/README.md", `service:desk`, false, "an example of what a user may call a program"},
}

// use is a word where it stands.
type use struct {
	word, instead string
	in            string // the identifier, or what stands between blanks in a comment or text
	at            token.Position
	file          string
	sql           bool // in a text of SQL
}

var (
	pieces = regexp.MustCompile(`[A-Za-z0-9_]+(?:[.:-][A-Za-z0-9_]+)*:?`)
	parts  = regexp.MustCompile(`[A-Z]+(?:[^A-Za-z]|$)|[A-Z]?[a-z]+|[A-Z]+`)
)

// words returns the words of an identifier or of what stands between blanks, in lower case.
func words(s string) (out []string) {
	for _, w := range parts.FindAllString(s, -1) {
		out = append(out, strings.ToLower(strings.Trim(w, "_0123456789.:-")))
	}
	return out
}

// uses returns every coined word of a file: in the identifiers that it declares, in comments,
// and in texts.
func uses(s source) (out []use) {
	add := func(lists []map[string]string, text string, pos token.Pos, sql bool) {
		for _, w := range words(text) {
			for _, list := range lists {
				if instead, found := list[w]; found {
					out = append(out, use{w, instead, text, s.set.Position(pos), s.name, sql})
				}
			}
		}
	}
	for name, isTest := range declaredNames(s.file) {
		lists := []map[string]string{coined, coinedNames}
		if isTest {
			lists = lists[:1]
		}
		add(lists, name.Name, name.Pos(), false)
	}
	for _, g := range s.file.Comments {
		for _, c := range g.List {
			for _, found := range pieces.FindAllStringIndex(c.Text, -1) {
				add([]map[string]string{coined}, strings.TrimSuffix(c.Text[found[0]:found[1]], ":"), c.Pos()+token.Pos(found[0]), false)
			}
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			for _, found := range pieces.FindAllStringIndex(lit.Value, -1) {
				add([]map[string]string{coined}, lit.Value[found[0]:found[1]], lit.Pos()+token.Pos(found[0]), sqlText.MatchString(lit.Value))
			}
		}
		if field, ok := n.(*ast.Field); ok && field.Tag != nil {
			for _, found := range tagNames.FindAllStringSubmatchIndex(field.Tag.Value, -1) {
				add([]map[string]string{coinedNames}, field.Tag.Value[found[2]:found[3]], field.Tag.Pos()+token.Pos(found[2]), false)
			}
		}
		return true
	})
	return out
}

// usesInSQL returns every coined word of a file of SQL: in its comments and texts, and in its
// names, which are identifiers.
func usesInSQL(name, text string) (out []use) {
	for n, line := range strings.Split(text, "\n") {
		comment := strings.HasPrefix(strings.TrimSpace(line), "--")
		for i, part := range strings.Split(line, "'") {
			for _, found := range pieces.FindAllString(part, -1) {
				for _, w := range words(found) {
					instead, coined := coined[w]
					if name, ordinary := coinedNames[w]; !coined && ordinary && !comment && i%2 == 0 {
						instead, coined = name, true
					}
					if coined {
						out = append(out, use{w, instead, found, token.Position{Line: n + 1}, name, true})
					}
				}
			}
		}
	}
	return out
}

// usesInGuide returns every coined word of a guide.
func usesInGuide(name, text string) (out []use) {
	block := false
	for n, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			block = !block
			continue
		}
		for i, part := range strings.Split(line, "`") {
			for _, found := range pieces.FindAllString(part, -1) {
				found = strings.TrimSuffix(found, ":")
				for _, w := range words(found) {
					instead, coined := coined[w]
					if name, ordinary := coinedNames[w]; !coined && ordinary && !block && i%2 == 1 && !isTest(found) {
						instead, coined = name, true
					}
					if coined {
						out = append(out, use{w, instead, found, token.Position{Line: n + 1}, name, false})
					}
				}
			}
		}
	}
	return out
}

// isTest reports whether a function of that name is a test.
func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Benchmark")
}

// declaredNames returns every identifier that a file declares, and whether it is the name of a test.
func declaredNames(f *ast.File) map[*ast.Ident]bool {
	out := map[*ast.Ident]bool{}
	add := func(names ...*ast.Ident) {
		for _, name := range names {
			out[name] = false
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			out[n.Name] = isTest(n.Name.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.Field:
			add(n.Names...)
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if name, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(name)
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if name, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(name)
				}
			}
		case *ast.LabeledStmt:
			add(n.Label)
		}
		return true
	})
	return out
}

// disallowed returns the uses that no allowance covers, and the allowances that cover none.
func disallowed(found []use, allowed []allowance) (rest []use, unused []allowance) {
	used := map[int]bool{}
	for _, u := range found {
		i := slices.IndexFunc(allowed, func(a allowance) bool {
			in := a.where == "" || u.file == a.where || strings.HasPrefix(u.file, a.where+"/")
			return in && a.word == u.word && (u.sql || !a.sql) && regexp.MustCompile(`^(?:`+a.form+`)$`).MatchString(u.in)
		})
		if used[i] = true; i < 0 {
			rest = append(rest, u)
		}
	}
	for i, a := range allowed {
		if !used[i] {
			unused = append(unused, a)
		}
	}
	return rest, unused
}

// The package itself has to name the words, and so do the pages that say what has another name now.
const thisPackage = "internal/house"

var formerNames = []string{".github/CHANGELOG.md", "internal/schema/migrations/NAMES.md"}

func TestNoCoinedWordStands(t *testing.T) {
	t.Parallel()
	var found []use
	for _, s := range sources(t) {
		if s.dir != thisPackage {
			found = append(found, uses(s)...)
		}
	}
	schema, err := filepath.Glob("../schema/migrations/*.sql")
	if err != nil || len(schema) == 0 {
		t.Fatalf("%d files of SQL, %v", len(schema), err)
	}
	for _, name := range schema {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, usesInSQL(strings.TrimPrefix(filepath.ToSlash(name), "../"), string(text))...)
	}
	for name, text := range guides(t) {
		if !slices.Contains(formerNames, name) {
			found = append(found, usesInGuide(name, text)...)
		}
	}
	rest, unused := disallowed(found, allowances)
	for _, u := range rest {
		t.Errorf("%s:%d: %q in %q: the word of the field is %q", u.file, u.at.Line, u.word, u.in, u.instead)
	}
	for _, a := range unused {
		t.Errorf("nothing needs the allowance of %q as %s (%s): remove it", a.word, a.form, a.why)
	}
}

func TestCoinedWordsAreFound(t *testing.T) {
	t.Parallel()
	const text = `package p

// ringBell wakes. A house bell, and BellCount; a ringleader is none.
type Mirror struct{ lastBell int ` + "`json:\"told\"`" + ` }

const stored, query, label = "bell_removed", "SELECT r.bell FROM runs r", "hush, a bell"

func TestAllAreToldOfOneBell() {}

func run(tells func()) (brakes int) {
crew:
	for sealed := range 3 {
		ghost, hush := 1, sealed
		_, brakes = ghost, hush
		break crew
	}
	return brakes
}
`
	rest, unused := disallowed(uses(parsed(t, "p/p.go", text)), []allowance{
		{"bell", "", `bell_removed`, false, storedName},
		{"bell", "", `(?:\w+\.)?bell`, true, storedName},
		{"crew", "elsewhere", `crew`, false, "it is of another folder"},
	})
	got := map[string]int{}
	for _, u := range rest {
		got[fmt.Sprintf("%d %s in %s", u.at.Line, u.word, u.in)]++
	}
	want := map[string]int{
		"3 ring in ringBell": 1, "3 bell in ringBell": 1, "3 bell in bell": 1, "3 bell in BellCount": 1,
		"4 mirror in Mirror": 1, "4 bell in lastBell": 1, "4 told in told": 1, "6 bell in bell": 1, "8 bell in TestAllAreToldOfOneBell": 1,
		"10 tells in tells": 1, "10 brakes in brakes": 1, "11 crew in crew": 1, "12 sealed in sealed": 1, "13 ghost in ghost": 1, "13 hush in hush": 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	const page = `-- A bell is told of; 'the crew''s' too.
CREATE TABLE recourse.desk (
    told bool DEFAULT false CHECK (reason <> 'told'),
    brake_by_hand bool -- a kind of shape
);`
	got = map[string]int{}
	for _, u := range usesInSQL("schema.sql", page) {
		got[fmt.Sprintf("%d %s in %s", u.at.Line, u.word, u.in)]++
	}
	if want := map[string]int{"1 bell in bell": 1, "1 crew in crew": 1, "2 desk in recourse.desk": 1, "3 told in told": 1, "4 brake in brake_by_hand": 1, "4 shape in shape": 1}; !maps.Equal(got, want) {
		t.Errorf("in SQL found %v, want %v", got, want)
	}
	const guide = "A bell, told `rung:now`; `TestAllAreTold` says `told`.\n```\ntold by a crew\n```\n`service:desk` of a desk"
	got = map[string]int{}
	for _, u := range usesInGuide("GUIDE.md", guide) {
		got[fmt.Sprintf("%d %s in %s", u.at.Line, u.word, u.in)]++
	}
	if want := map[string]int{"1 bell in bell": 1, "1 rung in rung:now": 1, "1 told in told": 1, "3 crew in crew": 1, "5 desk in service:desk": 1}; !maps.Equal(got, want) {
		t.Errorf("in a guide found %v, want %v", got, want)
	}
	if len(unused) != 1 || unused[0].where != "elsewhere" {
		t.Errorf("unused allowances: %v", unused)
	}
}
