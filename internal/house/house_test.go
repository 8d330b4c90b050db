package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/recourse-dev/recourse/"

// arrows says what each package of ours may import of ours. A package without a row may import all
// of ours: it assembles programs, or tests them. Each package under postadjudication has a row.
// No row names what its package does not import.
var arrows = map[string][]string{
	"retrypolicy":                                   {},
	"settlement":                                    {},
	"receipts":                                      {},
	"receipts/events":                               {"receipts"},
	"receipts/receiptstest":                         {"receipts"},
	"internal/redact":                               {},
	"internal/strictjson":                           {},
	"internal/pgurl":                                {},
	"internal/serverfault":                          {},
	"internal/signature":                            {},
	"internal/archive":                              {},
	"internal/sheet":                                {},
	"internal/textfile":                             {},
	"internal/tenantlimit":                          {},
	"internal/child":                                {},
	"internal/failpoint":                            {},
	"internal/every":                                {},
	"internal/chaos/worker":                         {"internal/chaos/remote", "settlement", "postadjudication/casestatus", "postadjudication", "postadjudication/escrow", "postadjudication/escrowhttp", "background", "receipts", "retrypolicy", "internal/failpoint", "internal/fakeescrow", "postadjudication/deadletter", "postadjudication/replay", "postadjudication/bulk", "postadjudication/retention", "postadjudication/jobs", "postadjudication/refusal", "postadjudication/webhooks", "internal/door", "internal/ojs", "postadjudication/references"},
	"internal/chaos/remote":                         {},
	"internal/access":                               {},
	"internal/app":                                  {"background", "background/circuit", "internal/access", "internal/api", "internal/build", "internal/door", "internal/fakeescrow", "internal/localpg", "internal/ojs", "internal/openwop", "internal/pgurl", "internal/serverfault", "postadjudication", "postadjudication/casestatus", "postadjudication/deadletter", "postadjudication/escrow", "postadjudication/escrowhttp", "postadjudication/jobs", "postadjudication/retention", "postadjudication/webhooks", "receipts"},
	"internal/ojs/spec":                             {"internal/strictjson", "retrypolicy"},
	"internal/openwop":                              {"internal/tenantlimit", "background", "internal/access", "internal/door", "internal/intake", "internal/openwop/spec", "internal/redact", "internal/strictjson", "postadjudication", "postadjudication/casestatus", "postadjudication/deadletter", "postadjudication/refusal", "receipts", "retrypolicy"},
	"internal/openwop/spec":                         {"internal/strictjson", "receipts", "receipts/events"},
	"internal/testkit/poll":                         {},
	"internal/testkit/program":                      {},
	"internal/intake":                               {"postadjudication", "postadjudication/refusal", "settlement", "internal/redact", "internal/strictjson"},
	"internal/fakeescrow":                           {"postadjudication/escrow", "settlement"},
	"internal/chaos/prove":                          {"internal/localpg"},
	"cmd/sandbox":                                   {"internal/child", "internal/localpg", "internal/localredis"},
	"internal/cli/doctor":                           {"postadjudication", "internal/pgurl", "internal/serverfault"},
	"internal/cli/demo":                             {"internal/app", "internal/cli/screen", "internal/fakeescrow", "internal/intake", "postadjudication", "postadjudication/audit", "postadjudication/casestatus", "postadjudication/escrow", "background", "receipts", "settlement"},
	"internal/door":                                 {"background", "internal/access", "internal/redact", "internal/strictjson", "internal/tenantlimit", "postadjudication", "postadjudication/bulk", "postadjudication/deadletter", "postadjudication/refusal", "receipts", "postadjudication/references"},
	"internal/ojs":                                  {"internal/tenantlimit", "background", "background/lease", "internal/access", "internal/door", "internal/intake", "internal/ojs/spec", "internal/redact", "internal/strictjson", "postadjudication", "postadjudication/bulk", "postadjudication/deadletter", "postadjudication/escrow", "postadjudication/jobs", "postadjudication/refusal", "postadjudication/replay", "receipts"},
	"internal/api":                                  {"settlement", "background", "internal/access", "internal/door", "internal/intake", "internal/redact", "internal/strictjson", "internal/tenantlimit", "postadjudication", "postadjudication/audit", "postadjudication/bulk", "postadjudication/casestatus", "postadjudication/deadletter", "postadjudication/deadletter/report", "postadjudication/escrow", "postadjudication/refusal", "postadjudication/replay", "postadjudication/retention", "receipts", "retrypolicy", "postadjudication/webhooks", "receipts/events"},
	"internal/cli/screen":                           {},
	"internal/cli/shell":                            {"internal/cli/screen", "internal/textfile", "internal/app", "internal/intake", "internal/access", "postadjudication", "settlement", "postadjudication/refusal", "postadjudication/retention"},
	"internal/cli/view":                             {"internal/cli/screen", "internal/cli/shell", "postadjudication", "receipts", "retrypolicy", "settlement", "postadjudication/casestatus", "postadjudication/bulk", "background/circuit"},
	"internal/cli/backend":                          {"internal/cli/shell", "internal/cli/view", "internal/client", "internal/app", "internal/access", "postadjudication", "receipts", "postadjudication/casestatus", "postadjudication/deadletter", "postadjudication/deadletter/report", "postadjudication/refusal", "postadjudication/replay", "postadjudication/bulk", "postadjudication/retention", "postadjudication/webhooks"},
	"internal/cli/history":                          {"internal/cli/backend", "internal/cli/screen", "internal/cli/shell", "postadjudication"},
	"internal/cli/policy":                           {"internal/cli/backend", "internal/cli/shell", "internal/cli/view", "postadjudication", "retrypolicy"},
	"internal/cli/webhook":                          {"internal/api", "internal/app", "internal/cli/backend", "internal/cli/history", "internal/cli/screen", "internal/cli/shell", "postadjudication", "postadjudication/deadletter", "postadjudication/webhooks", "receipts/events"},
	"internal/cli/dlq":                              {"internal/cli/backend", "internal/cli/history", "internal/cli/policy", "internal/cli/screen", "internal/cli/shell", "internal/cli/view", "internal/app", "postadjudication", "postadjudication/escrow", "background", "receipts", "retrypolicy", "settlement", "postadjudication/casestatus", "postadjudication/deadletter", "postadjudication/deadletter/report", "postadjudication/refusal", "postadjudication/replay", "postadjudication/bulk", "postadjudication/retention"},
	"internal/cli/clitest":                          {"internal/cli", "internal/app", "internal/testkit"},
	"internal/client":                               {"internal/access", "internal/api", "internal/door", "postadjudication", "postadjudication/bulk", "postadjudication/casestatus", "postadjudication/deadletter", "postadjudication/deadletter/report", "postadjudication/escrow", "postadjudication/refusal", "postadjudication/replay", "postadjudication/retention", "receipts", "retrypolicy", "postadjudication/webhooks", "receipts/events"},
	"internal/localpg":                              {"internal/child"},
	"internal/localredis":                           {"internal/child"},
	"postadjudication/jobs":                         {"internal/tenantlimit", "postadjudication/refusal", "background/lease", "postadjudication/internal/casework", "background", "postadjudication/internal/binding", "postadjudication/internal/journal", "retrypolicy", "postadjudication/internal/validate", "receipts", "postadjudication/casestatus", "postadjudication/deadletter", "internal/strictjson", "postadjudication/escrow", "postadjudication/internal/referencepolicy"},
	"background/circuit":                            {"receipts"},
	"background/lease":                              {"receipts"},
	"background/internal/asynqredis":                {},
	"background":                                    {"retrypolicy", "receipts", "internal/failpoint", "background/circuit", "background/lease", "background/internal/asynqredis", "internal/every"},
	"background/backgroundtest":                     {"background", "receipts", "background/circuit", "background/lease"},
	"internal/schema":                               {"internal/schema/migrations", "internal/schema/stored", "internal/pgurl"},
	"postadjudication/internal/journal":             {"background", "background/circuit", "background/lease", "internal/access", "internal/failpoint", "internal/schema/migrations", "internal/schema/stored", "internal/tenantlimit", "postadjudication/internal/journal/pg", "postadjudication/refusal", "receipts", "retrypolicy", "settlement"},
	"postadjudication/internal/journal/pg":          {"internal/failpoint", "internal/pgurl"},
	"postadjudication/internal/journal/search":      {"postadjudication/internal/journal", "postadjudication/internal/journal/pg", "internal/schema/stored", "background", "settlement", "receipts", "internal/failpoint", "internal/signature", "internal/tenantlimit"},
	"postadjudication/internal/journal/plans":       {"settlement", "postadjudication/internal/journal", "postadjudication/internal/journal/pg", "postadjudication/internal/journal/search", "internal/schema/stored", "background", "receipts", "internal/failpoint"},
	"postadjudication/internal/journal/journaltest": {"postadjudication/internal/journal", "postadjudication/internal/journal/pg", "background", "receipts"},
	"postadjudication":                              {"background", "background/circuit", "internal/access", "internal/redact", "internal/schema", "internal/strictjson", "internal/tenantlimit", "postadjudication/audit", "postadjudication/bulk", "postadjudication/casestatus", "postadjudication/deadletter", "postadjudication/deadletter/report", "postadjudication/escrow", "postadjudication/internal/binding", "postadjudication/internal/casework", "postadjudication/internal/engine", "postadjudication/internal/eventlog", "postadjudication/internal/journal", "postadjudication/internal/journal/pg", "postadjudication/internal/journal/plans", "postadjudication/internal/journal/search", "postadjudication/internal/journal/webhookstore", "postadjudication/internal/trail", "postadjudication/internal/validate", "postadjudication/jobs", "postadjudication/refusal", "postadjudication/replay", "postadjudication/retention", "postadjudication/webhooks", "receipts", "retrypolicy", "settlement", "internal/every", "postadjudication/internal/referencepolicy", "postadjudication/references"},
	"postadjudication/escrow":                       {"background", "settlement", "postadjudication/internal/binding"},
	"postadjudication/escrowhttp":                   {"postadjudication/escrow", "settlement", "internal/strictjson", "internal/redact"},

	"internal/schema/migrations":                {},
	"internal/schema/stored":                    {"receipts", "internal/schema/migrations"},
	"postadjudication/internal/binding":         {"receipts", "settlement", "internal/access"},
	"postadjudication/references":               {"internal/strictjson", "settlement"},
	"postadjudication/internal/referencepolicy": {"internal/redact", "internal/schema/stored", "postadjudication/internal/journal", "postadjudication/internal/validate", "postadjudication/references", "postadjudication/refusal", "receipts"},
	"postadjudication/internal/trail":           {"receipts", "settlement", "internal/access", "internal/schema/stored"},
	"postadjudication/audit":                    {"receipts", "receipts/events", "settlement", "retrypolicy", "internal/access", "internal/archive", "internal/pgurl", "internal/schema/stored", "internal/textfile", "postadjudication/internal/binding", "postadjudication/internal/trail"},
	"postadjudication/refusal":                  {"background", "settlement"},
	"postadjudication/internal/validate":        {"internal/redact", "internal/strictjson", "postadjudication/refusal", "receipts", "retrypolicy"},
	"postadjudication/internal/casework":        {"background", "internal/redact", "postadjudication/escrow", "postadjudication/internal/binding", "postadjudication/internal/journal", "postadjudication/internal/validate", "postadjudication/refusal", "receipts", "retrypolicy", "settlement", "background/circuit", "background/lease", "postadjudication/internal/referencepolicy"},
	"postadjudication/casestatus":               {"background", "postadjudication/escrow", "postadjudication/internal/casework", "postadjudication/internal/journal", "postadjudication/internal/validate", "postadjudication/refusal", "receipts", "retrypolicy", "settlement", "background/circuit"},
	"postadjudication/deadletter":               {"background", "internal/access", "internal/sheet", "internal/tenantlimit", "postadjudication/casestatus", "postadjudication/escrow", "postadjudication/internal/casework", "postadjudication/internal/journal", "postadjudication/internal/journal/search", "postadjudication/internal/validate", "postadjudication/refusal", "receipts", "retrypolicy", "settlement", "postadjudication/internal/referencepolicy"},
	"postadjudication/deadletter/report":        {"settlement", "background", "postadjudication/casestatus", "postadjudication/deadletter", "postadjudication/internal/journal/search", "postadjudication/internal/validate", "postadjudication/refusal"},
	"postadjudication/internal/rig":             {"postadjudication", "postadjudication/audit", "postadjudication/casestatus", "postadjudication/deadletter", "postadjudication/escrow", "background", "receipts", "settlement", "internal/localpg", "internal/testkit", "internal/testkit/poll", "postadjudication/replay", "postadjudication/bulk", "postadjudication/internal/journal/journaltest", "postadjudication/retention"},
	"postadjudication/replay":                   {"settlement", "background", "internal/redact", "postadjudication/deadletter", "postadjudication/escrow", "postadjudication/internal/binding", "postadjudication/internal/casework", "postadjudication/internal/journal", "postadjudication/internal/journal/search", "postadjudication/internal/validate", "postadjudication/refusal", "receipts", "retrypolicy", "internal/every"},
	"postadjudication/bulk":                     {"settlement", "background", "internal/access", "postadjudication/casestatus", "postadjudication/deadletter", "postadjudication/escrow", "postadjudication/internal/binding", "postadjudication/internal/casework", "postadjudication/internal/journal", "postadjudication/internal/journal/plans", "postadjudication/internal/journal/search", "postadjudication/internal/validate", "postadjudication/refusal", "receipts", "retrypolicy", "internal/every"},
	"postadjudication/retention":                {"background", "internal/archive", "postadjudication/deadletter", "postadjudication/internal/binding", "postadjudication/internal/casework", "postadjudication/internal/journal", "postadjudication/internal/validate", "postadjudication/refusal", "receipts", "internal/every"},

	"postadjudication/internal/engine":               {"background", "background/circuit", "postadjudication/internal/casework"},
	"postadjudication/internal/rig/taskinspector":    {"background", "postadjudication/internal/rig"},
	"postadjudication/internal/eventlog":             {"internal/schema/stored", "postadjudication/internal/casework", "postadjudication/internal/journal", "postadjudication/refusal", "receipts", "receipts/events"},
	"postadjudication/internal/journal/webhookstore": {"postadjudication/internal/journal", "postadjudication/internal/journal/pg", "internal/schema/stored", "background", "receipts", "internal/failpoint"},
	"postadjudication/webhooks":                      {"internal/redact", "postadjudication/internal/binding", "postadjudication/internal/casework", "postadjudication/internal/eventlog", "postadjudication/internal/journal/webhookstore", "postadjudication/internal/validate", "postadjudication/internal/webhookdelivery", "postadjudication/refusal", "receipts/events"},
	"postadjudication/internal/webhookdelivery":      {"internal/failpoint", "postadjudication/internal/binding", "postadjudication/internal/casework", "postadjudication/internal/eventlog", "postadjudication/internal/journal/webhookstore", "postadjudication/internal/validate", "postadjudication/refusal", "receipts", "receipts/events"},
}

// pure packages do no I/O, have no clock, no log and no dependency.
var pure = []string{"retrypolicy", "settlement", "receipts", "internal/signature", "internal/strictjson", "internal/redact"}

// clockless packages are pure, but for what they import: each other, and dependencies that do no I/O.
var clockless = append(slices.Clone(pure), "receipts/events", "background/circuit", "background/lease", "postadjudication/internal/binding", "postadjudication/references", "internal/ojs/spec", "internal/openwop/spec")

const (
	longestFile     = 500
	longestFunction = 70
)

type source struct {
	dir  string
	name string
	file *ast.File
	set  *token.FileSet
}

// parsedOnce is every Go file of the module. The tests read the same trees and change none.
var parsedOnce = sync.OnceValues(func() (out []source, err error) {
	root := filepath.Join("..", "..")
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go"):
			return nil
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		out = append(out, source{path.Dir(filepath.ToSlash(rel)), filepath.ToSlash(rel), f, set})
		return err
	})
	return out, err
})

func sources(t *testing.T) []source {
	t.Helper()
	out, err := parsedOnce()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 50 {
		t.Fatalf("found %d Go files, the walk is broken", len(out))
	}
	return out
}

func TestImportsRunOneWay(t *testing.T) {
	t.Parallel()
	unused := map[string][]string{}
	for dir, allowed := range arrows {
		unused[dir] = slices.Clone(allowed)
	}
	for _, s := range sources(t) {
		allowed, listed := arrows[s.dir]
		if strings.HasSuffix(s.name, "_test.go") {
			continue
		}
		if !listed {
			if strings.HasPrefix(s.dir, "postadjudication/") { // the compiler lets it import the journal
				t.Errorf("%s is not in the table", s.dir)
			}
			continue
		}
		for _, i := range s.file.Imports {
			p := strings.Trim(i.Path.Value, `"`)
			ours, ok := strings.CutPrefix(p, module)
			if ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s; %s may import %v", s.name, ours, s.dir, allowed)
			}
			unused[s.dir] = slices.DeleteFunc(unused[s.dir], func(allowed string) bool { return allowed == ours })
			if slices.Contains(pure, s.dir) && strings.Contains(strings.SplitN(p, "/", 2)[0], ".") && !strings.HasPrefix(p, module) {
				t.Errorf("%s imports %s; %s is pure", s.name, p, s.dir)
			}
		}
	}
	for dir, names := range unused {
		for _, name := range names {
			t.Errorf("%s does not import %s: take it out of its row", dir, name)
		}
	}
}

func TestPurePackagesImportOnlyEachOther(t *testing.T) {
	t.Parallel()
	for _, dir := range clockless {
		for _, p := range arrows[dir] {
			if !slices.Contains(clockless, p) && (dir != "postadjudication/internal/binding" || p != "internal/access") {
				t.Errorf("%s is pure, and imports %s", dir, p)
			}
		}
	}
}

func TestPurePackagesHaveNoClockAndNoDice(t *testing.T) {
	t.Parallel()
	forbidden := map[string][]string{"time": {"Now", "Sleep", "After", "NewTimer", "Since", "Until"}}
	banned := []string{"os", "net", "net/http", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "database/sql"}
	for _, s := range sources(t) {
		if !slices.Contains(clockless, s.dir) || strings.HasSuffix(s.name, "_test.go") {
			continue
		}
		for _, i := range s.file.Imports {
			if slices.Contains(banned, strings.Trim(i.Path.Value, `"`)) {
				t.Errorf("%s imports %s", s.name, i.Path.Value)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(forbidden[x.Name], sel.Sel.Name) {
					t.Errorf("%s calls %s.%s", s.set.Position(n.Pos()), x.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestNothingGrowsTooLong(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if n := s.set.Position(s.file.End()).Line; n > longestFile {
			t.Errorf("%s has %d lines, %d at most", s.name, n, longestFile)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || strings.HasSuffix(s.name, "_test.go") {
				continue
			}
			if n := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1; n > longestFunction {
				t.Errorf("%s: %s has %d lines, %d at most", s.set.Position(f.Pos()), f.Name.Name, n, longestFunction)
			}
		}
	}
}

// The comment of a package begins with its name.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	documented := map[string]bool{}
	for _, s := range sources(t) {
		begin := "Package " + strings.TrimSuffix(s.file.Name.Name, "_test") + " "
		if s.file.Name.Name == "main" {
			begin = "Command " + filepath.Base(s.dir) + " "
		}
		if text := s.file.Doc.Text(); strings.HasPrefix(text, begin) && len(text) > 80 {
			documented[s.dir] = true
		} else if !documented[s.dir] {
			documented[s.dir] = false
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc of its promise", dir)
		}
	}
}
