package house

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// tenantAndActor are the exported functions and types of public packages that take a tenant and
// an actor, with the reason. Every other method is one of a handle, which As makes of both.
var tenantAndActor = map[string]string{
	"postadjudication.Service.As":               "the handle that users get",
	"postadjudication/bulk.Planner.As":          "a part of that handle",
	"postadjudication/deadletter.Repository.As": "a part of that handle",
	"postadjudication/jobs.Store.As":            "a part of that handle",
	"postadjudication/replay.Replayer.As":       "a part of that handle",
	"postadjudication/webhooks.Manager.As":      "a part of that handle",
	"postadjudication/deadletter.Proposer":      "a plan that a package above makes, for the handle of whoever asks",
}

func TestWhoActsForWhomIsSaidOnce(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, s := range sources(t) {
		if s.file.Name.Name != "main" && !strings.HasSuffix(s.name, "_test.go") && !slices.Contains(strings.Split(s.dir, "/"), "internal") {
			for _, name := range takeTenantAndActor(s) {
				found[name] = true
			}
		}
	}
	for name := range found {
		if tenantAndActor[name] == "" {
			t.Errorf("%s takes a tenant and an actor: make it a method of a handle that As returns", name)
		}
	}
	for name := range maps.Keys(tenantAndActor) {
		if !found[name] {
			t.Errorf("%s takes no tenant with an actor: take it off the list", name)
		}
	}
}

// takeTenantAndActor returns the exported functions, methods and types of functions of a file
// that have a parameter, or a method with a parameter, for each of the two.
func takeTenantAndActor(s source) (out []string) {
	both := func(f *ast.FuncType) bool {
		var names []string
		for _, p := range f.Params.List {
			for _, name := range p.Names {
				names = append(names, name.Name)
			}
		}
		return slices.Contains(names, "tenant") && slices.Contains(names, "actor")
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			if d.Name.IsExported() && both(d.Type) {
				out = append(out, s.dir+"."+name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				named, ok := spec.(*ast.TypeSpec)
				if !ok || !named.Name.IsExported() {
					continue
				}
				ast.Inspect(named.Type, func(n ast.Node) bool {
					if f, ok := n.(*ast.FuncType); ok && both(f) {
						out = append(out, s.dir+"."+named.Name.Name)
					}
					return true
				})
			}
		}
	}
	return out
}

func TestWhoActsTwiceIsFound(t *testing.T) {
	t.Parallel()
	got := takeTenantAndActor(parsed(t, "p/p.go", `package p

type T struct{ Do func(tenant, actor string) }
type I interface{ Do(actor string, n int, tenant string) }
type u func(tenant, actor string)

func (*T) As(tenant, actor string)       {}
func (T) Of(tenant string, actors []string) {}
func F(tenant string, n int, actor string)  {}
func f(tenant, actor string)                {}
`))
	if want := []string{"p.T", "p.I", "p.T.As", "p.F"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
