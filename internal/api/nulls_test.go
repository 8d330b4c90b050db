package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/door"
)

// nullFields returns the fields that rejectNulls names.
func nullFields(t *testing.T, body string) (fields []string) {
	t.Helper()
	var refused *door.Refusal
	if !errors.As(rejectNulls([]byte(body)), &refused) {
		t.Fatalf("%.60s is accepted", body)
	}
	for _, wrong := range refused.Fields {
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
