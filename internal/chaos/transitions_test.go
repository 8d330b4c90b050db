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

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// journal are the packages that send statements.
var journal = []string{"postadjudication/internal/journal", "postadjudication/internal/journal/pg", "postadjudication/internal/journal/search", "postadjudication/internal/journal/plans", "postadjudication/internal/journal/webhookstore"}

// deciders are the packages under postadjudication whose code decides which receipts are written: all
// but those of the journal.
func deciders(t *testing.T) (dirs []string) {
	t.Helper()
	root := filepath.Join("..", "..")
	if err := filepath.WalkDir(filepath.Join(root, "postadjudication"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if dir = filepath.ToSlash(dir); !slices.Contains(dirs, dir) && !strings.HasPrefix(dir, journal[0]) {
			dirs = append(dirs, dir)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return dirs
}

// A new kind of receipt, or a new statement, fails here until a worker is killed at it.
func TestEveryTransitionIsKilledAt(t *testing.T) {
	t.Parallel()
	constants := subtypeConstants(t)
	for _, layer := range [][]string{{"background"}, deciders(t), journal} {
		found := map[string]bool{}
		for _, f := range parsed(t, layer...) {
			for _, name := range written(f) {
				found[name] = true
				subtype, known := constants[name]
				if !known {
					t.Errorf("%s: receipts.%s is written, which is no subtype", layer, name)
				} else if _, killed := transitions[string(subtype)]; !killed {
					t.Errorf("%s: receipts of %q are written; transitions has no case that is killed at them", layer, subtype)
				}
			}
		}
		if len(found) < 3 {
			t.Errorf("%s: receipts of only %d subtypes are written: the search is broken", layer, len(found))
		}
	}
	for _, what := range pointsOf(t, journal...) {
		if _, killed := transitions[what]; !killed {
			t.Errorf("the journal passes the points of %q; transitions has no case that is killed at them", what)
		}
	}
}

// Every statement that changes a table is between its two points.
func TestEveryStatementThatWritesHasItsPoints(t *testing.T) {
	t.Parallel()
	files := parsed(t, journal...)
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

// parsed returns the files of packages, tests apart; each package must have some.
func parsed(t *testing.T, dirs ...string) (out []*ast.File) {
	t.Helper()
	for _, dir := range dirs {
		names, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(dir), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		before := len(out)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, f)
		}
		if len(out) == before {
			t.Fatalf("%s has no files", dir)
		}
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

// pointsOf are the things that packages name to package failpoint.
func pointsOf(t *testing.T, dirs ...string) (out []string) {
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
	for _, f := range parsed(t, dirs...) {
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

const returnedOnce = `SELECT (SELECT count(*) = 1 FROM recourse.receipts WHERE subtype = 'returned') AND (SELECT count(*) = 1 FROM recourse.returns)
	AND (SELECT bool_and(returned = released + refunded AND moved = 0 AND progression = 'dispute-ready') FROM recourse.cases WHERE kind = 'settlement')
	AND (SELECT bool_and(committed = 0) FROM recourse.escrow_sums) AND (SELECT bool_and(state = 'done') FROM recourse.bulks)`

// paid leaves a settled case.
func paid(s *fixture) {
	h := s.worker("")
	s.submit(h, adjudication(1, "ok", ""))
	s.awaitNoneLive()
	s.terminate(h)
}

// returnPayment says that the payment came back. It is in doubt whether that was recorded, until the killed worker's
// successor has.
func returnPayment(s *fixture, h *workerProcess) {
	s.accepted.beginReturn(transaction{"chaos", "txr_1"})
	s.command(h, worker.Return, "")
}
