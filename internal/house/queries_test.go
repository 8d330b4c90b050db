package house

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
	"testing"
)

// queryingTests is how many test files of public packages may query the database by Count or
// QueryBool. It can only get smaller: what several tests ask has a method of
// postadjudication/internal/rig that names it.
const queryingTests = 21

func TestFewTestsOfPublicPackagesQueryTheDatabase(t *testing.T) {
	t.Parallel()
	var found []string
	for _, s := range sources(t) {
		if !strings.HasSuffix(s.name, "_test.go") || strings.Contains("/"+s.dir+"/", "/internal/") {
			continue
		}
		if queries(s.file) {
			found = append(found, path.Join(s.dir, path.Base(s.name)))
		}
	}
	if len(found) != queryingTests {
		t.Errorf("%d files query the database, the limit is %d:\n%s", len(found), queryingTests, strings.Join(found, "\n"))
	}
}

// queries reports whether a file calls Count or QueryBool with SQL.
func queries(f *ast.File) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		switch method, _ := call.Fun.(*ast.SelectorExpr); {
		case method == nil:
		case method.Sel.Name == "QueryBool", method.Sel.Name == "Count" && isText(call.Args[0]):
			found = true
		}
		return true
	})
	return found
}

// isText reports whether an expression is a text, or a sum that begins with one.
func isText(e ast.Expr) bool {
	if sum, ok := e.(*ast.BinaryExpr); ok {
		return isText(sum.X)
	}
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING
}
