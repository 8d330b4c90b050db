package access

import (
	"slices"
	"strings"
	"testing"
)

// The whole table, written by hand: a changed permission must be changed here, too.
const permissionTable = `
            submitter worker operator approver auditor admin platform
submit      x         -      -        -        -       -     -
work        -         x      -        -        -       -     -
read        x         -      x        x        x       x     -
list        -         -      x        x        x       x     -
receipts    -         -      x        x        x       x     -
queues      -         -      -        -        -       -     x
metrics     -         -      -        -        -       -     x
tenants     -         -      -        -        -       -     x
fork        -         -      x        -        -       -     -
reconcile   -         -      x        -        -       -     -
cancel      -         -      x        -        -       -     -
breaker     -         -      x        -        -       -     -
hold        -         -      x        x        -       -     -
mark        -         -      x        -        -       -     -
purge       -         -      -        x        -       -     -
bulk-plan   -         -      x        -        -       -     -
bulk-run    -         -      -        x        -       -     -
bulk-stop   -         -      x        x        -       -     -
rules       -         -      -        -        -       x     -
policy      -         -      -        -        -       x     -
people      -         -      -        -        -       x     -
keys        -         -      -        -        -       x     -
webhooks    -         -      -        -        -       x     -`

func TestEveryCellOfTheTable(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSpace(permissionTable), "\n")
	roles := strings.Fields(lines[0])
	if len(lines)-1 != len(Actions()) || len(lines)-1 != len(permissions) || len(roles) != len(Roles())+1 {
		t.Fatalf("%d x %d cells, %d actions of %d, %d roles", len(lines)-1, len(roles), len(Actions()), len(permissions), len(Roles()))
	}
	for i, line := range lines[1:] {
		words := strings.Fields(line)
		action := Action(words[0])
		if Actions()[i] != action {
			t.Errorf("line %d is %s, the table has %s", i, action, Actions()[i])
		}
		for j, word := range words[1:] {
			role := Role(roles[j])
			if may := May([]Role{role}, action); may != (word == "x") || may != slices.Contains(Allowed(action), role) {
				t.Errorf("%s, %s: %v", role, action, may)
			}
		}
	}
}

func TestWhatIsUnknownIsRefused(t *testing.T) {
	t.Parallel()
	if May(Roles(), "frobnicate") || May([]Role{"root", ""}, Read) || May(nil, Read) {
		t.Error("allowed")
	}
	if !May([]Role{"root", Auditor, Submitter}, Submit) {
		t.Error("one of several roles must be enough")
	}
	Allowed(Read)[0] = "scribbled"
	if !May([]Role{Submitter}, Read) {
		t.Error("a caller's change of the slice affects the next caller")
	}
}
