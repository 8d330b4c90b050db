package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Role says what a key is for. A key may have several roles.
type Role string

// The roles.
const (
	Submitter Role = "submitter" // a program of an escrow service: submits, and reads what its principal submitted, by id and in events
	Worker    Role = "worker"    // a remote worker: fetches jobs and answers for them
	Operator  Role = "operator"  // repairs: forks, reconciles, cancels, opens circuit breakers
	Approver  Role = "approver"  // the second person: runs, pauses and cancels plans; holds, releases and purges letters
	Auditor   Role = "auditor"   // reads everything but keys and webhooks, and changes nothing
	Admin     Role = "admin"     // keys, policies, rules and webhooks; moves no money
)

// Platform is the role of the operator of the machines. It opens the pages and the counts that show all
// tenants, and no letter, case or receipt of any. Only the local command line grants it.
const Platform Role = "platform"

// Roles returns every role of a tenant in a fixed order. The caller may change the slice.
func Roles() []Role { return []Role{Submitter, Worker, Operator, Approver, Auditor, Admin} }

// ParseRoles parses roles separated by commas. An empty list, an unknown role, a repeated role
// and Platform, which has its own flag, are errors.
func ParseRoles(text string) ([]Role, error) {
	var out []Role
	for word := range strings.SplitSeq(text, ",") {
		out = append(out, Role(strings.TrimSpace(word)))
	}
	if slices.Contains(out, Platform) {
		return nil, errors.New("platform is granted with --platform, by the local command line only")
	}
	return out, CheckRoles(out)
}

// CheckRoles returns an error if a key can't have the roles.
func CheckRoles(roles []Role) error {
	if len(roles) == 0 {
		return fmt.Errorf("must name at least one of %s", JoinRoles(Roles()))
	}
	for i, r := range roles {
		switch {
		case r != Platform && !slices.Contains(Roles(), r):
			return fmt.Errorf("%.40q is none of %s", r, JoinRoles(Roles()))
		case slices.Contains(roles[:i], r):
			return fmt.Errorf("%s is given twice", r)
		}
	}
	return nil
}

// JoinRoles returns the names of roles, separated by commas.
func JoinRoles(roles []Role) string {
	var out []string
	for _, r := range roles {
		out = append(out, string(r))
	}
	return strings.Join(out, ", ")
}

// Ungrantable returns the given roles that allow an action which none of the own roles allows.
// The maker of a key can't grant them, or it could act through the new key. So an admin makes
// keys of auditors and admins; to make keys of submitters, workers, operators or approvers its key
// needs that role, too. The first of these keys are made by recourse keys create on the local
// command line. Platform is granted only there, whatever the own roles are.
func Ungrantable(own, given []Role) (beyond []Role) {
	for _, role := range given {
		if slices.ContainsFunc(Actions(), func(a Action) bool { return May([]Role{role}, a) && !May(own, a) }) || role == Platform {
			beyond = append(beyond, role)
		}
	}
	return beyond
}

// Outlives reports whether a key that expires at until, or never if until is zero, expires
// later than the key that makes it, which expires at own.
func Outlives(until time.Time, own *time.Time) bool {
	return own != nil && (until.IsZero() || until.After(*own))
}
