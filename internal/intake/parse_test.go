package intake_test

import (
	"testing"

	"github.com/recourse-dev/recourse/internal/intake"
)

func TestOneObjectIsReadForItsTenant(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text, tenant, field string // field: the expected problem's field; empty: no problem
	}{
		"its own":        {with(""), "acme", ""},
		"left out":       {instead(`"tenant":"acme",`, ""), "other", ""},
		"another's":      {with(""), "other", "tenant"},
		"unknown member": {with(`,"priority":1`), "acme", "priority"},
		"twice":          {with(`,"tenant":"acme"`), "acme", "tenant"},
		"too much":       {instead("12500", "60000"), "acme", "amount.minor"},
		"no object":      {"[]", "acme", ""},
		"a secret":       {with(`,"payload":{"card":"4242424242424242"}`), "acme", ""}, // Submit decides: it may have been accepted before
		"secret and bad": {with(`,"payload":{"4242424242424242":1e400}`), "acme", "payload"},
	} {
		a, problems := intake.ParseObject([]byte(tc.text), tc.tenant)
		sound := tc.field == "" && name != "no object"
		switch {
		case sound && (len(problems) > 0 || a.Tenant != tc.tenant || a.Amount.Minor != 12500):
			t.Errorf("%s: %+v, %v", name, a, problems)
		case !sound && (len(problems) != 1 || problems[0].Field != tc.field):
			t.Errorf("%s: %v", name, problems)
		}
	}
}
