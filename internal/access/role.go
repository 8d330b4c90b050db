package access

import (
	"fmt"
	"slices"
	"strings"
)

// Role is what a key is for. A key may have several.
type Role string

// The roles.
const (
	Submitter Role = "submitter" // a program of an escrow service: hands over, and looks
	Operator  Role = "operator"  // mends: forks, reconciles, cancels, brakes
	Approver  Role = "approver"  // the second pair of eyes: lets plans run and letters go
	Auditor   Role = "auditor"   // looks at everything and changes nothing
	Admin     Role = "admin"     // keys, policies and rules; moves no money
)

// Roles lists every role, in the order of the table. The slice is the caller's.
func Roles() []Role { return []Role{Submitter, Operator, Approver, Auditor, Admin} }

// ParseRoles reads roles separated by commas. None, an unknown one and one that is
// given twice are errors.
func ParseRoles(text string) ([]Role, error) {
	var out []Role
	for word := range strings.SplitSeq(text, ",") {
		out = append(out, Role(strings.TrimSpace(word)))
	}
	return out, CheckRoles(out)
}

// CheckRoles tells what is wrong with the roles of a key.
func CheckRoles(roles []Role) error {
	if len(roles) == 0 {
		return fmt.Errorf("must name at least one of %s", words(Roles()))
	}
	for i, r := range roles {
		switch {
		case !slices.Contains(Roles(), r):
			return fmt.Errorf("%.40q is none of %s", r, words(Roles()))
		case slices.Contains(roles[:i], r):
			return fmt.Errorf("%s is given twice", r)
		}
	}
	return nil
}

func words(roles []Role) string {
	var out []string
	for _, r := range roles {
		out = append(out, string(r))
	}
	return strings.Join(out, ", ")
}
