package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestARequestIsLoggedWithoutSecretsAndNotAtAnyLength(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("a", 100<<10)
	for path, want := range map[string]string{
		"/api/v1/breakers":              "GET /api/v1/breakers",
		"/api/v1/keys/4111111111111111": "GET /api/v1/keys/[card]",
		"/api/v1/password=hunter2/x y":  "GET /api/v1/password=[redacted] y",
		long:                            "GET " + long[:maxRequestName/2-len("GET ")] + " [cut]",
	} {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}}
		if got := requestName(r); got != want {
			t.Errorf("%.40q: %.60q (%d bytes), want %.60q (%d)", path, got, len(got), want, len(want))
		}
	}
}

// nullFields returns the fields that rejectNulls names.
func nullFields(t *testing.T, body string) (fields []string) {
	t.Helper()
	var p *Problem
	if !errors.As(rejectNulls([]byte(body)), &p) {
		t.Fatalf("%.60s is accepted", body)
	}
	for _, wrong := range p.Errors {
		fields = append(fields, wrong.Field)
	}
	return fields
}

func TestMembersThatAreNullAreNamedInBounds(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{
		`{"b":null,"a":{"c":[1,null,null]},"d":1}`: {"a.c", "b"},
		`{"":null}`: {`""`},
		`{"4111111111111111":null,"x":{"pwd=hunter2":null}}`:             {"[card]", "x.pwd=[redacted]"},
		`{"` + strings.Repeat("x", 500) + `":{"a":null}}`:                {"(a name of 500 bytes).a"},
		`{"a":[` + strings.Repeat(`{"b":null},`, 50) + `null]}`:          {"a", "a.b"},
		strings.Repeat(`{"a":`, 900) + "null" + strings.Repeat("}", 900): {strings.Repeat("a.", 16) + "(884 names deeper)"},
	} {
		if got := nullFields(t, body); !slices.Equal(got, want) {
			t.Errorf("%.60s: %q, want %q", body, got, want)
		}
	}
	members := make([]string, 1000)
	for i := range members {
		members[i] = fmt.Sprintf(`"m%03d":null`, i)
	}
	got := nullFields(t, "{"+strings.Join(members, ",")+"}")
	if len(got) != 20 || got[0] != "m000" || got[19] != "m019" {
		t.Errorf("%d fields: %q", len(got), got)
	}
}
