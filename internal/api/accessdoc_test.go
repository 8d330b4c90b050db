package api_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/api"
)

// described is an operation of the description.
type described struct {
	id, method, path string
	action           access.Action
	roles            []access.Role
	required         []parameter    // of the query
	body             map[string]any // the schema; nil: none
}

type parameter struct {
	name   string
	schema map[string]any
}

func (d described) String() string { return d.method + " " + d.path }

// description is the description that the API serves.
type description struct {
	operations []described // by path; reads before writes
	schemas    map[string]any
}

func (r *rig) description() (out description) {
	r.t.Helper()
	text := r.ask("", http.MethodGet, api.DescriptionPath, "").is(http.StatusOK)
	out.schemas = text["components"].(map[string]any)["schemas"].(map[string]any)
	for path, methods := range text["paths"].(map[string]any) {
		for method, doc := range methods.(map[string]any) {
			op := doc.(map[string]any)
			d := described{id: op["operationId"].(string), method: strings.ToUpper(method), path: path}
			action, _ := op["x-action"].(string)
			d.action = access.Action(action)
			roles, _ := op["x-roles"].([]any)
			for _, role := range roles {
				d.roles = append(d.roles, access.Role(role.(string)))
			}
			parameters, _ := op["parameters"].([]any)
			for _, p := range parameters {
				if p := p.(map[string]any); p["in"] == "query" && p["required"] == true {
					d.required = append(d.required, parameter{p["name"].(string), p["schema"].(map[string]any)})
				}
			}
			if body, has := op["requestBody"].(map[string]any); has {
				d.body = body["content"].(map[string]any)["application/json"].(map[string]any)["schema"].(map[string]any)
			}
			out.operations = append(out.operations, d)
		}
	}
	slices.SortFunc(out.operations, func(a, b described) int {
		reads := func(d described) int { return map[bool]int{false: 1}[d.method == http.MethodGet] }
		return cmp.Or(cmp.Compare(reads(a), reads(b)), cmp.Compare(a.path, b.path), cmp.Compare(a.method, b.method))
	})
	if len(out.operations) < 50 {
		r.t.Fatalf("only %d operations are described", len(out.operations))
	}
	return out
}

// example returns a minimal valid value of a schema.
func (d description) example(schema map[string]any) any {
	if ref, is := schema["$ref"].(string); is {
		return d.example(d.schemas[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any))
	}
	if examples, has := schema["examples"].([]any); has {
		return examples[0]
	}
	if values, has := schema["enum"].([]any); has {
		return values[0]
	}
	switch schema["type"] {
	case "string":
		least, _ := schema["minLength"].(float64)
		return strings.Repeat("a", max(int(least), 1))
	case "integer", "number":
		least, _ := schema["minimum"].(float64)
		return max(int(least), 1)
	case "boolean":
		return true
	case "array":
		return []any{d.example(schema["items"].(map[string]any))}
	}
	out := map[string]any{}
	members, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		out[name.(string)] = d.example(members[name.(string)].(map[string]any))
	}
	return out
}

// accessDocument returns the table of operations and roles in Markdown.
func accessDocument(operations []described) string {
	var out strings.Builder
	out.WriteString("# Who may do what\n\nEvery operation of the API, its action, and the roles that may do it. A request without a key, or with a key of\n" +
		"another role, is refused: 401, or 403 `role_missing` with a receipt. An object of another tenant is not found: 404.\n" +
		"Written by `go test ./internal/api -run IsTheOneThatIsCommitted -rewrite`; `TestEveryRoleOfEveryOperation` tests each cell.\n\n")
	roles := append(access.Roles(), access.Platform)
	out.WriteString("| operation | action |")
	for _, role := range roles {
		fmt.Fprintf(&out, " %s |", role)
	}
	out.WriteString("\n|---|---|" + strings.Repeat("---|", len(roles)) + "\n")
	lines := map[string]string{}
	for _, d := range operations {
		line := fmt.Sprintf("| `%s` | %s |", d, d.action)
		for _, role := range roles {
			line += map[bool]string{true: " x |", false: " |"}[slices.Contains(d.roles, role)]
		}
		lines[d.path+" "+d.method] = line
	}
	for _, key := range slices.Sorted(maps.Keys(lines)) {
		out.WriteString(lines[key] + "\n")
	}
	return out.String()
}

func TestTheAccessDocumentIsTheOneThatIsCommitted(t *testing.T) {
	t.Parallel()
	text := accessDocument(newRig(t).description().operations)
	if *rewrite {
		if err := os.WriteFile("access.md", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile("access.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(committed) != text {
		t.Errorf("the roles of the operations differ from access.md, first at %s\nif the change is intended: go test ./internal/api -run IsTheOneThatIsCommitted -rewrite", difference(string(committed), text))
	}
}
