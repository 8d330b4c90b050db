package backend_test

import (
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/backend"
)

func TestTheNextCommandCanBeGivenToAShell(t *testing.T) {
	t.Parallel()
	for tenant, want := range map[string]string{"acme": " --tenant acme --actor root", "o'neil & sons": ` --tenant 'o'\''neil & sons' --actor root`, "$HOME": ` --tenant '$HOME' --actor root`} {
		o := backend.Flags{Tenant: tenant, Actor: "root"}
		if got := o.RepeatFlags(true); got != want {
			t.Errorf("%q: %s, want %s", tenant, got, want)
		}
	}
}
