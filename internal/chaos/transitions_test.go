package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// writers are the packages whose code decides which receipts are written.
var writers = []string{"background", "postadjudication", "internal/postgres"}

// A new kind of receipt, or a new statement, fails here until a worker is killed at it.
func TestEveryTransitionIsKilledAt(t *testing.T) {
	t.Parallel()
	constants := subtypeConstants(t)
	for _, dir := range writers {
		found := map[string]bool{}
		for _, f := range parsed(t, dir) {
			for _, name := range written(f) {
				found[name] = true
				subtype, known := constants[name]
				if !known {
					t.Errorf("%s writes receipts.%s, which is no subtype", dir, name)
				} else if _, killed := transitions[string(subtype)]; !killed {
					t.Errorf("%s writes receipts of %q; transitions has no case that is killed at them", dir, subtype)
				}
			}
		}
		if len(found) < 3 {
			t.Errorf("%s writes receipts of only %d subtypes: the search is broken", dir, len(found))
		}
	}
	for _, what := range pointsOf(t, "internal/postgres") {
		if _, killed := transitions[what]; !killed {
			t.Errorf("internal/postgres passes the points of %q; transitions has no case that is killed at them", what)
		}
	}
}

// Every statement that changes a table is between its two points.
func TestEveryStatementThatWritesHasItsPoints(t *testing.T) {
	t.Parallel()
	files := parsed(t, "internal/postgres")
	writing := writingConstants(files)
	found := 0
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			sends, writes, passes, commits := false, false, false, false
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					x, _ := n.X.(*ast.Ident)
					inTx := x != nil && x.Name == "tx" // the function that commits passes the points
					sends = sends || !inTx && (n.Sel.Name == "ExecContext" || n.Sel.Name == "QueryContext" || n.Sel.Name == "QueryRowContext")
					commits = commits || inTx && n.Sel.Name == "Commit"
				case *ast.Ident:
					writes = writes || writing[n.Name]
					passes = passes || n.Name == "hitTransitionPoints" || n.Name == "hitOpenPoints" || n.Name == "JournalAfter"
				case *ast.BasicLit:
					writes = writes || changesATable(n.Value)
				}
				return true
			})
			if commits || sends && writes {
				found++
				if !passes {
					t.Errorf("%s sends a statement that writes without passing its failpoints", fn.Name.Name)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no function that writes was found: the search is broken")
	}
}

func parsed(t *testing.T, dir string) []*ast.File {
	t.Helper()
	var out []*ast.File
	root := filepath.Join("..", "..", filepath.FromSlash(dir))
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root:
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, 0)
		out = append(out, f)
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(out), err)
	}
	return out
}

// subtypeConstants maps the names of package receipts' constants to subtypes.
func subtypeConstants(t *testing.T) map[string]receipts.Subtype {
	t.Helper()
	out := map[string]receipts.Subtype{}
	for _, f := range parsed(t, "receipts") {
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Names) != 1 || len(v.Values) != 1 {
				return true
			}
			if kind, ok := v.Type.(*ast.Ident); !ok || kind.Name != "Subtype" {
				return true
			}
			if lit, ok := v.Values[0].(*ast.BasicLit); ok {
				if s := receipts.Subtype(strings.Trim(lit.Value, `"`)); s.Source() != "" {
					out[v.Names[0].Name] = s
				}
			}
			return true
		})
	}
	if len(out) != len(receipts.KnownSubtypes()) {
		t.Fatalf("%d constants of %d subtypes found", len(out), len(receipts.KnownSubtypes()))
	}
	return out
}

// deciding are the methods whose first argument is the receipt of a transition.
var deciding = []string{"newTransition", "transition"}

// written are the constants of package receipts that a file puts into drafts and
// transitions: as Subtype or Event of a literal, by assignment, or in a call of a
// method that makes a transition.
func written(f *ast.File) (names []string) {
	take := func(e ast.Expr) {
		if s, ok := e.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "receipts" {
				names = append(names, s.Sel.Name)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if k, ok := n.Key.(*ast.Ident); ok && (k.Name == "Subtype" || strings.EqualFold(k.Name, "event")) {
				take(n.Value)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if s, ok := left.(*ast.SelectorExpr); ok && s.Sel.Name == "Event" && len(n.Lhs) == len(n.Rhs) {
					take(n.Rhs[i])
				}
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(deciding, s.Sel.Name) && len(n.Args) > 0 {
				take(n.Args[0])
			}
		}
		return true
	})
	return names
}

// pointsOf are the things that a package names to package failpoint.
func pointsOf(t *testing.T, dir string) (out []string) {
	t.Helper()
	names := map[string]string{}
	for _, f := range parsed(t, "internal/failpoint") {
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == 1 && len(v.Values) == 1 {
				if lit, ok := v.Values[0].(*ast.BasicLit); ok {
					names[v.Names[0].Name] = strings.Trim(lit.Value, `"`)
				}
			}
			return true
		})
	}
	for _, f := range parsed(t, dir) {
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "failpoint" && names[s.Sel.Name] != "" && !strings.Contains(names[s.Sel.Name], ".") {
				out = append(out, names[s.Sel.Name])
			}
			return true
		})
	}
	if !strings.Contains(strings.Join(out, " "), failpoint.AdvanceNotification) {
		t.Fatal("no points were found: the search is broken")
	}
	return out
}

// writingConstants are the names of SQL texts that change a table.
func writingConstants(files []*ast.File) map[string]bool {
	out := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Values) != 1 {
				return true
			}
			ast.Inspect(v.Values[0], func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && changesATable(lit.Value) {
					out[v.Names[0].Name] = true
				}
				return true
			})
			return true
		})
	}
	return out
}

func changesATable(text string) bool {
	for _, verb := range []string{"INSERT INTO recourse.", "UPDATE recourse.", "DELETE FROM recourse."} {
		if strings.Contains(text, verb) {
			return true
		}
	}
	return false
}
