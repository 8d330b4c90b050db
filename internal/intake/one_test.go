package intake_test

import (
	"testing"

	"github.com/recourse-dev/recourse/internal/intake"
)

func TestOneObjectIsReadForItsTenant(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text, tenant, field string // field: what is wrong, if something is
	}{
		"its own":        {with(""), "acme", ""},
		"left out":       {instead(`"tenant":"acme",`, ""), "other", ""},
		"another's":      {with(""), "other", "tenant"},
		"unknown member": {with(`,"priority":1`), "acme", "priority"},
		"twice":          {with(`,"tenant":"acme"`), "acme", "tenant"},
		"too much":       {instead("12500", "60000"), "acme", "amount.minor"},
		"no object":      {"[]", "acme", ""},
	} {
		a, problems := intake.One([]byte(tc.text), tc.tenant)
		sound := tc.field == "" && name != "no object"
		switch {
		case sound && (len(problems) > 0 || a.Tenant != tc.tenant || a.Amount.Minor != 12500):
			t.Errorf("%s: %+v, %v", name, a, problems)
		case !sound && (len(problems) != 1 || problems[0].Field != tc.field):
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestStrictNamesWhatAReaderMayOverlook(t *testing.T) {
	t.Parallel()
	if p := intake.Strict([]byte(`{"a":{"b":1},"c":[{"b":2}]}`)); p != nil {
		t.Errorf("%v", p)
	}
	for text, field := range map[string]string{`{"a":{"b":1,"b":2}}`: "a.b", `{"a":1}{`: "", `[]`: "", ``: "", "{\"a\":\"\xff\"}": ""} {
		if p := intake.Strict([]byte(text)); p == nil || p.Field != field {
			t.Errorf("%q: %v", text, p)
		}
	}
}
