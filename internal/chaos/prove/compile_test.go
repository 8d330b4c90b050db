package prove

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// listPackages returns the packages of the module by folder, and the files in which go keeps what
// each package exports. It compiles what changed.
func listPackages(t *testing.T) (byDir map[string]listed, exports map[string]string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	cmd.Dir = filepath.FromSlash(root)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	byDir, exports = map[string]listed{}, map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return byDir, exports
		} else if err != nil {
			t.Fatal(err)
		}
		byDir[p.Dir], exports[p.ImportPath] = p, p.Export
	}
}

// A product that does not compile without a guard proves nothing of it.
func TestTheProductCompilesWithoutEachGuard(t *testing.T) {
	t.Parallel()
	byDir, exports := listPackages(t)
	set := token.NewFileSet()
	fromExports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	unchanged := map[string]*ast.File{}
	checked := 0
	for _, g := range Guards {
		replaced, dirs := replacements(t, g)
		for dir := range dirs {
			var files []*ast.File
			changed := map[string]bool{}
			for _, name := range byDir[dir].GoFiles {
				from := filepath.Join(dir, name)
				if to := replaced[from]; to != "" {
					changed[to] = true
					files = append(files, parse(t, set, to))
					continue
				}
				if unchanged[from] == nil {
					unchanged[from] = withoutBodies(parse(t, set, from))
				}
				files = append(files, unchanged[from])
			}
			config := types.Config{Importer: fromExports, Sizes: types.SizesFor("gc", runtime.GOARCH), Error: func(err error) {
				// Without bodies, imports are not used.
				if e := new(types.Error); errors.As(err, e) && (!e.Soft || changed[set.Position(e.Pos).Filename]) {
					t.Errorf("%s: %v", g.Name, err)
				}
			}}
			_, _ = config.Check(byDir[dir].ImportPath, set, files, nil) // Error was called with each error
			if checked += len(changed); len(changed) == 0 {
				t.Errorf("%s: %s has none of the changed files", g.Name, dir)
			}
		}
	}
	if checked < len(Guards)/2 {
		t.Errorf("%d files checked for %d guards", checked, len(Guards))
	}
}

func parse(t *testing.T, set *token.FileSet, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// withoutBodies replaces the bodies of functions: what is in them is compiled with the product.
func withoutBodies(f *ast.File) *ast.File {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			call := &ast.CallExpr{Fun: ast.NewIdent("panic"), Args: []ast.Expr{ast.NewIdent("nil")}}
			fn.Body = &ast.BlockStmt{List: []ast.Stmt{&ast.ExprStmt{X: call}}}
		}
	}
	return f
}

// replacements returns the Go files of a guard's overlay with what replaces them, and their folders.
func replacements(t *testing.T, g Guard) (replaced map[string]string, dirs map[string]bool) {
	t.Helper()
	name, err := g.overlay(root, t.TempDir())
	if err != nil {
		t.Fatalf("%s: %v", g.Name, err)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(raw, &overlay); err != nil {
		t.Fatal(err)
	}
	replaced, dirs = map[string]string{}, map[string]bool{}
	for from, to := range overlay.Replace {
		if from, err = filepath.Abs(from); err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(from) == ".go" {
			replaced[from], dirs[filepath.Dir(from)] = to, true
		}
	}
	return replaced, dirs
}
