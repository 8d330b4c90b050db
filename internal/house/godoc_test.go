package house

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Whoever reads in a guide of a method finds it by go doc, which hides those of a type that is embedded from
// another package.
func TestGoDocShowsEachMethodThatAGuideNames(t *testing.T) {
	t.Parallel()
	ofUsers := guides(t)
	maps.DeleteFunc(ofUsers, func(file, _ string) bool {
		return strings.HasPrefix(file, "internal/") || strings.HasPrefix(file, ".github/")
	})
	named, dirs := namesIn(ofUsers), map[string]bool{}
	for _, h := range handles {
		dirs[h.dir] = true
	}
	from := importerOf(token.NewFileSet(), exportData(t, importPaths(dirs)))
	shown := map[string]bool{}
	for dir := range dirs {
		set, files := parsedAgain(t, dir)
		maps.Copy(shown, documented(t, set, files, dir))
	}
	compared := 0
	for _, h := range handles {
		verbs, err := h.verbs(from)
		if err != nil {
			t.Fatal(err)
		}
		for verb, function := range verbs {
			if !named[verb[strings.LastIndex(verb, ".")+1:]] || h.name == "" {
				continue
			}
			compared++
			declared := strings.TrimPrefix(strings.NewReplacer("(", "", "*", "", ")", "").Replace(function), module)
			if !shown[verb] && !shown[declared] {
				t.Errorf("a guide names %s, and go doc does not show %s", verb, function)
			}
		}
	}
	if compared < 10 {
		t.Errorf("the guides name %d methods: they are not read", compared)
	}
}

func TestAMethodThatGoDocHidesIsFound(t *testing.T) {
	t.Parallel()
	text := "package p\nimport \"q\"\n// S serves.\ntype S struct { hidden; *elsewhere }\ntype hidden struct{}\ntype elsewhere = q.T\n" +
		"func (hidden) Promoted() {}\nfunc (S) Own() {}\n"
	of := parsed(t, "p/p.go", text)
	got := documented(t, of.set, []*ast.File{of.file}, "p")
	if want := map[string]bool{"p.S.Promoted": true, "p.S.Own": true}; !maps.Equal(got, want) {
		t.Errorf("go doc shows %v, want %v", got, want)
	}
	names := namesIn(map[string]string{"GUIDE.md": "`Status` and `svc.As(tenant, actor)`\n```go\nsvc.Events(ctx)\n```\nCase"})
	if got := slices.Sorted(maps.Keys(names)); !slices.Equal(got, []string{"As", "Events", "Status", "actor", "ctx", "svc", "tenant"}) {
		t.Errorf("the guide names %q", got)
	}
}

// code is what stands between backticks or in a block of Go.
var code, word = regexp.MustCompile("(?s)```go\\n.*?```|`[^`\\n]+`"), regexp.MustCompile(`[A-Za-z][\w-]*`)

// namesIn returns each word of the code in the guides.
func namesIn(guides map[string]string) map[string]bool {
	out := map[string]bool{}
	for _, text := range guides {
		for _, c := range code.FindAllString(text, -1) {
			for _, w := range word.FindAllString(strings.TrimPrefix(c, "```go"), -1) {
				out[w] = true
			}
		}
	}
	return out
}

// parsedAgain returns the files of a package but its tests, in one set, as go doc needs them.
func parsedAgain(t *testing.T, dir string) (*token.FileSet, []*ast.File) {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	for _, s := range sources(t) {
		if s.dir != dir || strings.HasSuffix(s.name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, filepath.Join("..", "..", s.name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return set, files
}

// documented returns PACKAGE.TYPE.METHOD of each method that go doc shows of a package.
func documented(t *testing.T, set *token.FileSet, files []*ast.File, dir string) map[string]bool {
	t.Helper()
	pkg, err := doc.NewFromFiles(set, files, module+dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, typ := range pkg.Types {
		for _, m := range typ.Methods {
			out[dir+"."+typ.Name+"."+m.Name] = true
		}
	}
	return out
}

// importPaths returns the import paths of directories of the module.
func importPaths(dirs map[string]bool) (out []string) {
	for dir := range dirs {
		out = append(out, module+dir)
	}
	return out
}
