package access

import (
	"slices"
	"time"
)

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
