package api_test

import (
	"flag"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

var rewrite = flag.Bool("rewrite", false, "rewrite openapi.json and access.md")

func TestTheOpenAPIDescriptionIsTheOneThatIsCommitted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	served := r.ask("", http.MethodGet, api.DescriptionPath, "")
	if served.status != http.StatusOK || served.header.Get("Content-Type") != "application/openapi+json" || served.object()["openapi"] != "3.1.0" {
		t.Fatalf("%d %.200s", served.status, served.text)
	}
	if *rewrite {
		if err := os.WriteFile("openapi.json", []byte(served.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(committed) != served.text {
		t.Errorf("the served description differs from openapi.json, first at %s\nif the change is intended: go test ./internal/api -run %s -rewrite", difference(string(committed), served.text), t.Name())
	}
}

func difference(a, b string) string {
	was, is := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			return "line " + was[i] + " is " + is[i]
		}
	}
	return "its end"
}

// Every member of the filter is a parameter, so that HTTP and the library filter by the
// same members.
func TestEveryMemberOfTheFilterIsAParameter(t *testing.T) {
	t.Parallel()
	members, parameters := map[string]bool{}, map[string]bool{}
	for i := range reflect.TypeFor[deadletter.Filter]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[deadletter.Filter]().Field(i).Tag.Get("json"), ",")
		members[name] = true
	}
	for i := range reflect.TypeFor[api.LetterFilter]().NumField() {
		parameters[reflect.TypeFor[api.LetterFilter]().Field(i).Tag.Get("query")] = true
	}
	if !reflect.DeepEqual(members, parameters) || len(members) == 0 {
		t.Errorf("the filter has %v, the query %v", members, parameters)
	}
}

// The described members of an adjudication are those that are parsed.
func TestTheDescribedAdjudicationIsTheOneThatIsRead(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"outcome": `"release"`, "generation": "2", "amount": `{"minor":1,"currency":"USD"}`, "held": `{"minor":2,"currency":"USD"}`,
		"tenant": `"acme"`, "payload": `{"note":"x"}`, "simulate": `"ok"`,
	}
	var members []string
	for i := range reflect.TypeFor[api.Adjudication]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[api.Adjudication]().Field(i).Tag.Get("json"), ",")
		value := values[name]
		if value == "" {
			value = `"word"`
		}
		members = append(members, `"`+name+`":`+value)
	}
	a, wrong := intake.ParseObject([]byte("{"+strings.Join(members, ",")+"}"), "acme")
	if len(wrong) > 0 || a.Generation != 2 || a.Target != "word" || !strings.Contains(string(a.Payload), "simulate") {
		t.Errorf("%+v: %v", a, wrong)
	}
}

// A client can generate types that switch on every code: the problem of each operation lists its codes, and each
// member of each schema says what it is. A member of a request that may be left out has no default: generators
// would make it mandatory.
func TestTheDescriptionIsCompleteForGeneratedClients(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	served := r.ask("", http.MethodGet, api.DescriptionPath, "").object()
	for schema, is := range served["components"].(map[string]any)["schemas"].(map[string]any) {
		members, _ := is.(map[string]any)["properties"].(map[string]any)
		for name, member := range members {
			m := member.(map[string]any)
			if text, _ := m["description"].(string); text == "" {
				t.Errorf("%s.%s has no description", schema, name)
			}
			if m["default"] != nil {
				t.Errorf("%s.%s has a default", schema, name)
			}
		}
	}
	if servers, _ := served["servers"].([]any); len(servers) == 0 {
		t.Error("no server is described")
	}
	codes, _ := describedCodes()
	for op, codes := range codes {
		if len(codes) < 10 {
			t.Errorf("%s: only the codes %v", op, codes)
		}
	}
}
