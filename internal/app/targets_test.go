package app

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication"
)

func TestTargetsAreReadAndDistinguished(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		targets []string
		word    string // empty: accepted
	}{
		"none":                        {nil, ""},
		"another name":                {[]string{"north"}, ""},
		"another service":             {[]string{"bank=https://bank"}, ""},
		"another path":                {[]string{"bank=https://h/bank"}, ""},
		"another port":                {[]string{"bank=https://h:8080"}, ""},
		"the default again":           {[]string{"escrow"}, "twice"},
		"the default with a URL":      {[]string{"escrow=https://bank"}, "twice"},
		"a name twice":                {[]string{"bank=https://bank", "bank"}, "twice"},
		"no URL":                      {[]string{"bank="}, "NAME=URL"},
		"no name":                     {[]string{"=https://bank"}, "NAME=URL"},
		"the URL of the default":      {[]string{"bank=HTTPS://H:443/"}, "circuit breaker"},
		"one URL twice":               {[]string{"bank=https://bank", "house=https://BANK.:443/"}, "circuit breaker"},
		"one variable for two":        {[]string{"a-b=https://one", "a.b=https://two"}, AuthorizationVariable + "_A_B"},
		"one variable, one is a name": {[]string{"a-b=https://one", "a.b"}, ""},
	} {
		o := validOptions()
		o.Targets = tc.targets
		err := o.check()
		if tc.word == "" && err != nil || tc.word != "" && (!errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), tc.word)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each escrow service receives only its own Authorization header.
func TestEachTargetHasItsOwnAuthorization(t *testing.T) {
	t.Parallel()
	o := validOptions()
	o.EscrowURL = "https://escrow"
	var asked []string
	o.FromEnvironment(func(name string) string {
		if name == TargetsVariable {
			return "north  bank-2=https://bank"
		}
		asked = append(asked, name)
		return ""
	})
	asked = nil
	e, err := o.OpenEscrow()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if !slices.Equal(asked, []string{AuthorizationVariable + "_BANK_2"}) {
		t.Errorf("read the variables %v", asked)
	}
	if len(e.Targets) != 2 || e.Targets[0] != (postadjudication.Target{Name: "north"}) || e.Targets[1].Name != "bank-2" || e.Targets[1].Executor == nil || e.Targets[1].Executor == e.Executor {
		t.Errorf("%+v", e.Targets)
	}
}
