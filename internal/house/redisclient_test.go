package house

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// heldAsInterface are the types that no struct of a package that others use may hold: each importer would
// compile their methods again. See "No type of a service leads to the Redis client" in
// postadjudication/decisions.md.
var heldAsInterface = []string{"background.Manager", "background.Fetcher", "lru.Cache"}

func TestNoTypeLeadsToTheRedisClient(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		for _, problem := range redisClientProblems(s) {
			t.Error(problem)
		}
	}
}

// redisClientProblems returns what makes importers of a package compile the Redis client or a cache.
func redisClientProblems(s source) (problems []string) {
	service := s.dir == "postadjudication" || strings.HasPrefix(s.dir, "postadjudication/")
	if !service && s.dir != "internal/access" && s.dir != "internal/door" || strings.HasSuffix(s.name, "_test.go") {
		return nil
	}
	mayKnow := s.dir == "postadjudication/internal/engine" || s.dir == "postadjudication/internal/rig/taskinspector"
	for _, i := range s.file.Imports {
		if strings.HasPrefix(i.Path.Value, `"github.com/redis/go-redis`) && !mayKnow {
			problems = append(problems, s.name+" imports go-redis")
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if nameOf(n.Fun) == "background.New" && !mayKnow {
				problems = append(problems, s.name+" calls background.New")
			}
		case *ast.StructType:
			for _, f := range n.Fields.List {
				if held := nameOf(f.Type); slices.Contains(heldAsInterface, held) {
					problems = append(problems, fmt.Sprintf("%s holds a %s, not an interface", s.name, held))
				}
			}
		}
		return true
	})
	return problems
}

// nameOf returns the name of a type or function of another package, without pointer and type arguments; empty
// for any other.
func nameOf(e ast.Expr) string {
	if of, ok := bare(e).(*ast.SelectorExpr); ok {
		if pkg, ok := of.X.(*ast.Ident); ok {
			return pkg.Name + "." + of.Sel.Name
		}
	}
	return ""
}

func TestATypeThatLeadsToTheRedisClientIsFound(t *testing.T) {
	t.Parallel()
	s := parsed(t, "postadjudication/made.go", `package postadjudication
import "github.com/redis/go-redis/v9"
type A struct { m *background.Manager; f *background.Fetcher }
type B struct { c *lru.Cache[int, string]; ok background.Run }
func f() { background.New(c); redis.NewClient(nil) }
`)
	want := []string{
		"postadjudication/made.go imports go-redis",
		"postadjudication/made.go holds a background.Manager, not an interface", "postadjudication/made.go holds a background.Fetcher, not an interface",
		"postadjudication/made.go holds a lru.Cache, not an interface", "postadjudication/made.go calls background.New",
	}
	if got := redisClientProblems(s); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
