package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// snippet is a block of Go in a guide.
type snippet struct {
	file string
	line int // of the first line of code
	text string
}

// imported are the packages that snippets name.
var imported = map[string]string{
	"context": "context", "http": "net/http", "json": "encoding/json", "os": "os", "sql": "database/sql", "time": "time",
	"netip": "net/netip", "asynq": "github.com/hibiken/asynq", "zap": "go.uber.org/zap",
	"background": module + "background", "escrow": module + "postadjudication/escrow", "escrowhttp": module + "postadjudication/escrowhttp", "postadjudication": module + "postadjudication", "webhooks": module + "postadjudication/webhooks", "events": module + "receipts/events",
	"receipts": module + "receipts", "retrypolicy": module + "retrypolicy", "settlement": module + "settlement",
}

// given are the variables that snippets use and do not declare.
const given = `ctx context.Context, svc *postadjudication.Service, db *sql.DB, executor escrow.Executor,
	adjudication postadjudication.Adjudication, payload json.RawMessage, page func(postadjudication.DeadLetter)`

func TestGoInGuidesCompiles(t *testing.T) {
	t.Parallel()
	all := guideSnippets(t)
	if len(all) < 5 {
		t.Fatalf("found %d blocks of Go in the guides", len(all))
	}
	exports := exportData(t, slices.Sorted(maps.Values(imported)))
	for _, s := range all {
		for _, problem := range compile(s, exports) {
			t.Error(problem)
		}
	}
}

func TestGoThatDoesNotCompileIsFound(t *testing.T) {
	t.Parallel()
	exports := exportData(t, slices.Sorted(maps.Values(imported)))
	for _, c := range []struct{ text, want string }{
		{"got, err := svc.Submit(ctx, adjudication)\n// got.Reply", ""},
		{"postadjudication.Config{Executor: executor}", ""},
		{"f := func() error { ... }", ""},
		{"got, err := svc.SubmitTx(ctx, nil, adjudication)\nerr = got.Announce(ctx)", "GUIDE.md:8: got.Announce undefined (type postadjudication.Submitted has no field or method Announce)"},
		{"postadjudication.Config{Bells: 1}", "GUIDE.md:7: unknown field Bells in struct literal of type postadjudication.Config"},
		{"svc.Submit(ctx, adjudication", "GUIDE.md:7: missing ',' before newline in argument list"},
		{"fmt.Println(1)", "GUIDE.md:7: undefined: fmt"},
	} {
		if got := strings.Join(compile(snippet{"GUIDE.md", 7, c.text}, exports), "\n"); got != c.want {
			t.Errorf("%s\nfound %q, want %q", c.text, got, c.want)
		}
	}
}

// guideSnippets returns the blocks of Go in every guide.
func guideSnippets(t *testing.T) (out []snippet) {
	t.Helper()
	for file, text := range guides(t) {
		out = append(out, blocks(file, text)...)
	}
	return out
}

// guides returns the text of every page in Markdown, by the name of its file.
func guides(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(p) != ".md" {
			return err
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, p)
		out[filepath.ToSlash(file)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func blocks(file, text string) (out []snippet) {
	var open *snippet
	for n, line := range strings.SplitAfter(text, "\n") {
		switch {
		case open == nil && strings.TrimSpace(line) == "```go":
			open = &snippet{file: file, line: n + 2}
		case open != nil && strings.TrimSpace(line) == "```":
			out, open = append(out, *open), nil
		case open != nil:
			open.text += line
		}
	}
	return out
}

// exportData returns the files in which go keeps what packages and those that they import export. It compiles
// what changed.
func exportData(t *testing.T, packages []string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Export"}, packages...)...)
	cmd.Dir = filepath.Join("..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return exports
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
}

// importerOf returns what imports packages from export data.
func importerOf(set *token.FileSet, exports map[string]string) types.Importer {
	return importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
}

// compile reports what the compiler has to say of a snippet, but that it declares what it does not use.
func compile(s snippet, exports map[string]string) (problems []string) {
	// A body that is left out returns nothing, and may have to return something.
	text := strings.ReplaceAll(s.text, "{ ... }", `{ panic("left out") }`)
	head := "package snippet\n"
	for _, name := range slices.Sorted(maps.Keys(imported)) {
		head += fmt.Sprintf("import %s %q\n", name, imported[name])
	}
	src := fmt.Sprintf("%sfunc _(%s) error {{\n//line %s:%d:1\n%s\n}; return nil }\n", head, given, s.file, s.line, text)
	set := token.NewFileSet()
	report := func(at token.Position, text string) {
		problems = append(problems, fmt.Sprintf("%s:%d: %s", s.file, at.Line, text))
	}
	f, err := parser.ParseFile(set, "snippet.go", src, parser.SkipObjectResolution)
	if err != nil {
		var list scanner.ErrorList
		if !errors.As(err, &list) {
			return []string{err.Error()}
		}
		report(list[0].Pos, list[0].Msg) // the others follow from it
		return problems
	}
	// A literal that stands alone shows how something is filled in.
	ast.Inspect(f, func(n ast.Node) bool {
		if b, ok := n.(*ast.BlockStmt); ok {
			for i, stmt := range b.List {
				if e, ok := stmt.(*ast.ExprStmt); ok {
					if lit, ok := e.X.(*ast.CompositeLit); ok {
						b.List[i] = &ast.AssignStmt{Lhs: []ast.Expr{ast.NewIdent("_")}, Tok: token.ASSIGN, TokPos: lit.Pos(), Rhs: []ast.Expr{lit}}
					}
				}
			}
		}
		return true
	})
	config := types.Config{
		Importer: importerOf(set, exports),
		Error: func(err error) {
			if e := new(types.Error); errors.As(err, e) && !e.Soft {
				report(set.Position(e.Pos), e.Msg)
			}
		},
	}
	// Check returns the first of the errors that Error was called with.
	_, _ = config.Check("snippet", set, []*ast.File{f}, nil)
	return problems
}
