package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// A limit is on what a package or a type may hold, tests apart.
type limit string

const (
	packageFiles limit = "files"          // of a package
	typeMethods  limit = "methods"        // of a type, exported or not
	packageNames limit = "exported names" // of a package: functions, types, constants, variables; not methods
)

// limits hold for every package and type.
var limits = map[limit]int{packageFiles: 35, typeMethods: 30, packageNames: 110}

// quantity is a number that is limited: of a package ("background") or of a type
// ("background.Manager").
type quantity struct {
	limit limit
	of    string
}

func TestPackagesAndTypesKeepTheirLimits(t *testing.T) {
	t.Parallel()
	for _, problem := range beyond(measure(sources(t))) {
		t.Error(problem)
	}
}

// measure counts what is limited. Tests do not count.
func measure(files []source) map[quantity]int {
	n := map[quantity]int{}
	for _, s := range files {
		if strings.HasSuffix(s.name, "_test.go") {
			continue
		}
		n[quantity{packageFiles, s.dir}]++
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				n[quantity{typeMethods, s.dir + "." + receiver(f.Recv.List[0].Type)}]++
				continue
			}
			for _, name := range declared(d) {
				if name.IsExported() {
					n[quantity{packageNames, s.dir}]++
				}
			}
		}
	}
	return n
}

// declared returns the names that a declaration outside of functions gives to its package.
func declared(d ast.Decl) (names []*ast.Ident) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		names = append(names, d.Name)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name)
			case *ast.ValueSpec:
				names = append(names, spec.Names...)
			}
		}
	}
	return names
}

// receiver returns the name of the type of a method.
func receiver(e ast.Expr) string {
	if name, ok := bare(e).(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// bare returns the expression of a type or function without pointer and type arguments.
func bare(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.StarExpr:
		return bare(e.X)
	case *ast.IndexExpr:
		return bare(e.X)
	case *ast.IndexListExpr:
		return bare(e.X)
	}
	return e
}

// beyond reports what is over its limit.
func beyond(measured map[quantity]int) (problems []string) {
	for q, n := range measured {
		if n > limits[q.limit] {
			problems = append(problems, fmt.Sprintf("%s has %d %s, %d at most", q.of, n, q.limit, limits[q.limit]))
		}
	}
	slices.Sort(problems)
	return problems
}

// parsed is a file of a made-up package.
func parsed(t *testing.T, name, text string) source {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	dir, _, _ := strings.Cut(name, "/")
	return source{dir, name, f, set}
}

func TestLimitsAreFoundToBeBroken(t *testing.T) {
	t.Parallel()
	made := func(files, methods, names int) (out []source) {
		text := "package p\ntype T[K, V any] struct{}\ntype U struct{}\n" // T counts as a name
		for i := range methods {
			text += fmt.Sprintf("func (t *T[K, V]) m%d() {}\n", i)
		}
		text += "func (U) M() {}\nvar local, Shared int\nconst (\n"
		for i := range names - 3 {
			text += fmt.Sprintf("C%d = %d\n", i, i)
		}
		out = append(out, parsed(t, "p/first.go", text+")\n"), parsed(t, "p/first_test.go", "package p\nfunc (T[K, V]) X() {}\nconst D = 1\n"))
		for i := range files - 1 {
			out = append(out, parsed(t, fmt.Sprintf("p/f%d.go", i), "package p\nfunc f() {}\n"))
		}
		return out
	}
	for _, c := range []struct {
		files, methods, names int
		want                  []string
	}{
		{35, 30, 110, nil},
		{36, 30, 110, []string{"p has 36 files, 35 at most"}},
		{35, 31, 110, []string{"p.T has 31 methods, 30 at most"}},
		{35, 30, 111, []string{"p has 111 exported names, 110 at most"}},
	} {
		if got := beyond(measure(made(c.files, c.methods, c.names))); !slices.Equal(got, c.want) {
			t.Errorf("%d files, %d methods, %d names: %q, want %q", c.files, c.methods, c.names, got, c.want)
		}
	}
}
