package house

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// handle is what a user has in hand: a type, or a package with its functions.
type handle struct {
	dir, name string // name is empty for the functions of the package
	// elsewhere are more packages whose examples may call its verbs, besides its own and postadjudication.
	elsewhere []string
	only      []string // the verbs that users call; nil: all
}

// handles are those whose exported methods or functions are verbs, promoted methods included.
var handles = []handle{
	{dir: "postadjudication"},
	{dir: "postadjudication", name: "Service", elsewhere: []string{"postadjudication/audit", "postadjudication/deadletter", "postadjudication/replay", "postadjudication/retention"}},
	{dir: "postadjudication", name: "DeadLetters", elsewhere: []string{"postadjudication/deadletter", "postadjudication/deadletter/report", "postadjudication/retention"}},
	{dir: "postadjudication", name: "Submitted"},
	{dir: "postadjudication", name: "IdempotentRequest"},
	{dir: "postadjudication", name: "TenantCases", elsewhere: []string{"postadjudication/casestatus"}},
	{dir: "postadjudication", name: "TenantBreakers"},
	{dir: "postadjudication", name: "TenantPolicies"},
	{dir: "postadjudication", name: "TenantPeople"},
	{dir: "postadjudication", name: "TenantKeys"},
	{dir: "postadjudication", name: "TenantOperationLogs"},
	{dir: "postadjudication/deadletter"},
	{dir: "postadjudication/deadletter", name: "Letters"},
	{dir: "postadjudication/deadletter", name: "Condition"},
	{dir: "postadjudication/deadletter/report", name: "Reports"},
	{dir: "postadjudication/bulk", name: "Plans"},
	{dir: "postadjudication/replay"},
	{dir: "postadjudication/replay", name: "Rules"},
	{dir: "postadjudication/retention"},
	{dir: "postadjudication/retention", name: "Schedule"},
	{dir: "postadjudication/audit", elsewhere: []string{"postadjudication/retention"}},
	{dir: "postadjudication/audit", name: "Report"},
	{dir: "postadjudication/jobs", name: "Jobs"},
	{dir: "postadjudication/jobs", name: "DeadLetters"},
	{dir: "postadjudication/webhooks"},
	{dir: "postadjudication/webhooks", name: "Webhooks"},
	{dir: "postadjudication/casestatus", name: "Cases"},
	{dir: "postadjudication/escrow"},
	{dir: "postadjudication/escrowhttp"},
	{dir: "postadjudication/escrowhttp", name: "Executor"},
	{dir: "background", only: []string{"New"}}, // a Service calls the others
	{dir: "background", name: "Manager", only: []string{"Run", "Notify", "Queue", "Close"}},
	{dir: "receipts/events"},
}

// withoutExample are the verbs that need no example, and why.
var withoutExample = map[string]string{
	"postadjudication.WithCaller":                         "an HTTP API says by it how it authenticated a caller",
	"postadjudication.Service.KeyStore":                   "an HTTP API authenticates by it, with internal/access",
	"postadjudication.Service.Follow":                     "WaitEvents that keeps what it has read, with the limits of an HTTP API",
	"postadjudication.Service.After":                      "Events without its checks, for WaitEvents and webhooks",
	"postadjudication.Service.Signal":                     "WaitEvents waits by it",
	"postadjudication.Service.NewestPosition":             "webhooks and streams begin there",
	"postadjudication.Service.Sequence":                   "Run calls it",
	"postadjudication.Submitted.String":                   "fmt calls it",
	"postadjudication.Submitted.GoString":                 "fmt calls it",
	"postadjudication/deadletter.Condition.String":        "fmt calls it",
	"postadjudication/deadletter.CheckQuery":              "plans, rules and reports check by it",
	"postadjudication/deadletter.ConditionError":          "plans refuse by it",
	"postadjudication/deadletter.CursorDigest":            "reports bind their cursors by it",
	"postadjudication/deadletter.CursorScope":             "reports bind their cursors by it",
	"postadjudication/deadletter.JournalTime":             "reports and plans compare times by it",
	"postadjudication/deadletter.NewLimiter":              "a Service makes it",
	"postadjudication/deadletter.MaxForkAttempts":         "HTTP APIs and plans limit forks by it",
	"postadjudication/deadletter.ReasonCodes":             "a list of constants",
	"postadjudication/replay.NewReplayer":                 "a Service makes it",
	"postadjudication/retention.NewKeeper":                "a Service makes it",
	"postadjudication/webhooks.NewManager":                "a Service makes it",
	"postadjudication/audit.Empty":                        "the command line compares saved heads with it",
	"postadjudication/audit.Report.Omitted":               "a number of the report",
	"postadjudication/jobs.DeadLetters.UniqueHolder":      "/ojs says by it why a retry is refused",
	"postadjudication/escrowhttp.Executor.KeyLifetime":    "a Service reads by it what the configuration states",
	"postadjudication/escrowhttp.Executor.LookupLifetime": "a Service reads by it what the configuration states",
	"postadjudication/escrowhttp.Executor.AcceptedFor":    "a Service reads by it what the configuration states",
}

// Each verb is called in an example that go doc shows with its package, or with postadjudication.
func TestEveryPublicVerbIsCalledInAnExample(t *testing.T) {
	t.Parallel()
	examples := exampleFiles(sources(t))
	exports := exportData(t, importsOf(examples))
	set := token.NewFileSet()
	from := importerOf(set, exports)
	called := map[string]map[string]bool{}
	for dir, files := range examples {
		verbs, problems := callsIn(files, from)
		called[dir] = verbs
		for _, problem := range problems {
			t.Errorf("an example uses only what is in the files of examples, and what it imports: %s", problem)
		}
	}
	without := maps.Clone(withoutExample)
	for _, h := range handles {
		verbs, err := h.verbs(from)
		if err != nil {
			t.Fatal(err)
		}
		for verb, function := range verbs {
			_, excepted := without[verb]
			switch shown := h.isShown(function, called); {
			case shown && excepted:
				t.Errorf("%s has an example: take it off the list of those without", verb)
			case !shown && !excepted:
				t.Errorf("no example of %s calls %s", strings.Join(h.places(), " or "), verb)
			}
			delete(without, verb)
		}
	}
	for verb := range without {
		t.Errorf("%s is not a verb: take it off the list of those without an example", verb)
	}
}

func TestAVerbWithoutExampleIsFound(t *testing.T) {
	t.Parallel()
	exports := exportData(t, []string{module + "postadjudication"})
	const text = "package bulk_test\nimport \"" + module + "postadjudication/bulk\"\n" +
		"func ExamplePlans() { var p struct{ bulk.Plans }; p.Get(nil, [16]byte{}) }\nfunc helper(p bulk.Plans) { p.List(nil, bulk.Filter{}, \"\") }\n"
	files := []source{parsed(t, "bulk/example_test.go", text)}
	got, problems := callsIn(files, importerOf(files[0].set, exports))
	if want := "(" + module + "postadjudication/bulk.Plans)."; !maps.Equal(got, map[string]bool{want + "Get": true}) || len(problems) != 0 {
		t.Errorf("calls %v, %q", got, problems)
	}
	if _, problems := callsIn([]source{parsed(t, "bulk/example_test.go", "package bulk_test\nfunc Example() { elsewhere() }\n")}, importer.Default()); len(problems) != 1 {
		t.Errorf("%q", problems)
	}
}

// verbs returns the full names of the functions of a handle, by the names of its verbs.
func (h handle) verbs(from types.Importer) (map[string]string, error) {
	pkg, err := from.Import(module + h.dir)
	if err != nil {
		return nil, err
	}
	prefix, functions := h.dir+".", []types.Object{}
	if h.name == "" {
		for _, name := range pkg.Scope().Names() {
			functions = append(functions, pkg.Scope().Lookup(name))
		}
	} else {
		object := pkg.Scope().Lookup(h.name)
		if object == nil {
			return nil, fmt.Errorf("%s has no %s", h.dir, h.name)
		}
		prefix += h.name + "."
		for method := range types.NewMethodSet(types.NewPointer(object.Type())).Methods() {
			functions = append(functions, method.Obj())
		}
	}
	out := map[string]string{}
	for _, object := range functions {
		if f, ok := object.(*types.Func); ok && f.Exported() && (h.only == nil || slices.Contains(h.only, f.Name())) {
			out[prefix+f.Name()] = f.FullName()
		}
	}
	if len(out) == 0 || h.only != nil && len(out) != len(h.only) {
		return nil, fmt.Errorf("%s%s does not have the verbs %v", prefix, h.name, h.only)
	}
	return out, nil
}

// places returns the packages whose examples may call the verbs of a handle.
func (h handle) places() []string {
	places := append([]string{h.dir}, h.elsewhere...)
	if h.dir != "postadjudication" && strings.HasPrefix(h.dir, "postadjudication/") {
		places = append(places, "postadjudication")
	}
	return places
}

func (h handle) isShown(function string, called map[string]map[string]bool) bool {
	return slices.ContainsFunc(h.places(), func(dir string) bool { return called[dir][function] })
}

// exampleFiles returns the files of examples, by package.
func exampleFiles(all []source) map[string][]source {
	out := map[string][]source{}
	for _, s := range all {
		if name := path.Base(s.name); strings.HasPrefix(name, "example_") && strings.HasSuffix(name, "_test.go") {
			out[s.dir] = append(out[s.dir], s)
		}
	}
	return out
}

// importsOf returns what the files import.
func importsOf(files map[string][]source) (packages []string) {
	for _, of := range files {
		for _, s := range of {
			for _, i := range s.file.Imports {
				packages = append(packages, strings.Trim(i.Path.Value, `"`))
			}
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

// callsIn returns the full names of the functions that the examples of a package use, and what does not compile.
func callsIn(files []source, from types.Importer) (called map[string]bool, problems []string) {
	var parsed []*ast.File
	set := files[0].set
	for _, s := range files {
		parsed = append(parsed, s.file)
	}
	uses := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: from, Error: func(err error) {
		if e := new(types.Error); errors.As(err, e) {
			problems = append(problems, files[0].dir+": "+e.Msg) // each file has positions of its own
		}
	}}
	// Check returns the first of the errors that Error was called with.
	_, _ = config.Check(files[0].file.Name.Name, set, parsed, uses)
	called = map[string]bool{}
	for _, f := range parsed {
		for _, d := range f.Decls {
			example, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(example.Name.Name, "Example") {
				continue
			}
			ast.Inspect(example, func(n ast.Node) bool {
				if name, ok := n.(*ast.Ident); ok {
					if f, ok := uses.Uses[name].(*types.Func); ok {
						called[f.FullName()] = true
					}
				}
				return true
			})
		}
	}
	return called, problems
}
