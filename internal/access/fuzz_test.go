package access

import (
	"slices"
	"strings"
	"testing"
)

func FuzzAPrefixIsPartOfItsToken(f *testing.F) {
	token, _, _ := Mint()
	for _, seed := range []string{token, token + "x", "rck_", "rck__", "", "rck_a_b", "RCK_" + token} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if prefix, ok := Prefix(text); ok && (prefix == "" || !strings.Contains(text, prefix)) {
			t.Errorf("%q has the prefix %q", text, prefix)
		}
	})
}

func FuzzRolesThatAreReadAreKnown(f *testing.F) {
	for _, seed := range []string{"admin", "admin, auditor", "admin,admin", "", ",", "root", "Admin", "platform", "admin,platform"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		roles, err := ParseRoles(text)
		if err == nil && len(roles) == 0 {
			t.Errorf("%q reads as no role", text)
		}
		for _, role := range roles {
			if err == nil && !slices.Contains(Roles(), role) { // roles of a tenant only: platform has its own flag
				t.Errorf("%q reads as %v", text, roles)
			}
		}
	})
}
