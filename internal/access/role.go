package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Role is what a key is for. A key may have several.
type Role string

// The roles.
const (
	Submitter Role = "submitter" // a program of an escrow service: hands over, and reads what it has the id of, and events
	Operator  Role = "operator"  // mends: forks, reconciles, cancels, brakes
	Approver  Role = "approver"  // the second pair of eyes: lets plans run and letters go
	Auditor   Role = "auditor"   // looks at everything and changes nothing
	Admin     Role = "admin"     // keys, policies and rules; moves no money
)

// Platform is the role of whoever runs the machines: it opens what shows all tenants at once,
// and nothing of a single one. It is given beside the database only.
const Platform Role = "platform"

// Roles lists every role of a tenant, in the order of the table. The slice is the caller's.
func Roles() []Role { return []Role{Submitter, Operator, Approver, Auditor, Admin} }

// ParseRoles reads roles separated by commas. None, an unknown one and one that is
// given twice are errors, and so is Platform: it has a flag of its own.
func ParseRoles(text string) ([]Role, error) {
	var out []Role
	for word := range strings.SplitSeq(text, ",") {
		out = append(out, Role(strings.TrimSpace(word)))
	}
	if slices.Contains(out, Platform) {
		return nil, errors.New("platform is given by --platform, beside the database")
	}
	return out, CheckRoles(out)
}

// CheckRoles tells what is wrong with the roles of a key.
func CheckRoles(roles []Role) error {
	if len(roles) == 0 {
		return fmt.Errorf("must name at least one of %s", joinRoles(Roles()))
	}
	for i, r := range roles {
		switch {
		case r != Platform && !slices.Contains(Roles(), r):
			return fmt.Errorf("%.40q is none of %s", r, joinRoles(Roles()))
		case slices.Contains(roles[:i], r):
			return fmt.Errorf("%s is given twice", r)
		}
	}
	return nil
}

func joinRoles(roles []Role) string {
	var out []string
	for _, r := range roles {
		out = append(out, string(r))
	}
	return strings.Join(out, ", ")
}
