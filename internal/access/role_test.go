package access

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Every cell, by hand: whether a key with the roles on the left can grant the role above. Only
// roles with admin make keys; the others are here because Ungrantable takes any
// roles.
const grantTable = `
                   submitter worker operator approver auditor admin
submitter          x         -      -        -        -       -
worker             -         x      -        -        -       -
operator           -         -      x        -        x       -
approver           -         -      -        x        x       -
auditor            -         -      -        -        x       -
admin              -         -      -        -        x       x
admin+submitter    x         -      -        -        x       x
admin+worker       -         x      -        -        x       x
admin+operator     -         -      x        -        x       x
admin+approver     -         -      -        x        x       x
admin+auditor      -         -      -        -        x       x
operator+approver  -         -      x        x        x       -
submitter+worker+operator+approver+auditor+admin x x x x x x`

func TestNobodyGrantsMoreThanTheirOwnRolesAllow(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSpace(grantTable), "\n")
	roles := strings.Fields(lines[0])
	if len(roles) != len(Roles()) {
		t.Fatalf("%d roles", len(roles))
	}
	for _, line := range lines[1:] {
		words := strings.Fields(line)
		var own []Role
		for word := range strings.SplitSeq(words[0], "+") {
			own = append(own, Role(word))
		}
		if len(words)-1 != len(roles) {
			t.Fatalf("%s has %d cells", words[0], len(words)-1)
		}
		for i, word := range words[1:] {
			beyond := Ungrantable(own, []Role{Role(roles[i])})
			if (len(beyond) == 0) != (word == "x") {
				t.Errorf("%s grants %s: beyond %v", words[0], roles[i], beyond)
			}
		}
	}
	if got := Ungrantable([]Role{Admin}, []Role{Auditor, Operator, Admin, Submitter}); !slices.Equal(got, []Role{Operator, Submitter}) {
		t.Errorf("%v", got)
	}
	if all := append(Roles(), Platform); !slices.Equal(Ungrantable(all, all), []Role{Platform}) {
		t.Errorf("platform is granted by a key that has it: beyond %v", Ungrantable(all, all))
	}
	if got := Ungrantable(nil, Roles()); len(got) != len(Roles()) {
		t.Errorf("all roles grant every role but %v", got)
	}
}

func TestNoKeyOutlivesTheOneItWasMadeWith(t *testing.T) {
	t.Parallel()
	end := time.Unix(1000, 0)
	for until, want := range map[time.Time]bool{{}: true, end.Add(-1): false, end: false, end.Add(1): true} {
		if got := Outlives(until, &end); got != want {
			t.Errorf("%v: %v", until, got)
		}
		if Outlives(until, nil) {
			t.Errorf("%v outlives a key that never expires", until)
		}
	}
}
