package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Role is what a key is for. A key may have several.
type Role string

// The roles.
const (
	Submitter Role = "submitter" // a program of an escrow service: hands over, and reads what it has the id of, and events
	Operator  Role = "operator"  // mends: forks, reconciles, cancels, stops calls
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

// Ungrantable lists those of the roles given that allow something which none of one's own
// does. Whoever makes a key gives none of them: what one may not do, one does not let
// oneself do by another key. So an admin makes keys of auditors and admins, and makes
// those of submitters, operators and approvers with a key that is of their role too;
// the first of them are made beside the database, by recourse keys create. Platform is
// given there only, whatever one's own roles.
func Ungrantable(own, given []Role) (beyond []Role) {
	for _, role := range given {
		if slices.ContainsFunc(Actions(), func(a Action) bool { return May([]Role{role}, a) && !May(own, a) }) || role == Platform {
			beyond = append(beyond, role)
		}
	}
	return beyond
}

// Outlives reports whether a key that is made to last until a time, or for ever when
// that is zero, opens longer than the key that it is made with.
func Outlives(until time.Time, own *time.Time) bool {
	return own != nil && (until.IsZero() || until.After(*own))
}
