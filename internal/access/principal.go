package access

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

var (
	principals = regexp.MustCompile(`^[a-z]+:[A-Za-z0-9._@+-]{1,100}$`)
	bareNames  = regexp.MustCompile(`^[A-Za-z0-9._@+-]{1,100}$`)
)

// reserved are the kinds of principals that act without a key: the system, rules, and what the processes write receipts as.
var reserved = []string{"system", "rule", "worker", "lookup", "observer", "breaker"}

// CheckPrincipal returns an error if text can't be the principal of a key. It must be a kind and
// a name, such as user:ada or service:desk, and the kind must not be reserved.
func CheckPrincipal(text string) error {
	kind, _, _ := strings.Cut(text, ":")
	switch {
	case !principals.MatchString(text):
		return errors.New("must be a kind and a name, such as user:ada or service:desk: lower-case letters, a colon, and 1 to 100 of A-Z a-z 0-9 . _ @ + -")
	case slices.Contains(reserved, kind):
		return errors.New(kind + ": is reserved for principals that act without a key")
	}
	return nil
}

// CheckActor returns an error if text can't be the name that a user of the local command line
// gives, where no key proves it. It may also be a bare name, such as root, which no key has.
func CheckActor(text string) error {
	switch {
	case text == "local":
		return errors.New("local is reserved for requests that need no key")
	case bareNames.MatchString(text):
		return nil
	}
	return CheckPrincipal(text)
}

// Person is an actor: a principal, and the prefix of the key that proves it. Key is empty if
// nothing proves the name.
type Person struct{ Principal, Key string }

// SamePerson reports whether two actors must be treated as one person. keys are all keys that
// their tenant ever had. They are one person if
//   - they have the same name, whatever its case, and with or without user: before it,
//   - one of them made the other's key, or the key with which that key was made, and so on: the
//     maker of a key has seen its secret,
//   - a third one made the keys of both, likewise, or took the successors of both, and has a key.
//
// Two keys that a third one made who never had a key are those of two persons: they were made with direct access to the
// database.
func SamePerson(a, b Person, keys []Key) bool {
	nameA, nameB := folded(a.Principal), folded(b.Principal)
	byPrefix, byName := map[string][]string{}, map[string][]string{}
	for i := range keys {
		k := &keys[i]
		name, maker := folded(k.Principal), folded(k.CreatedBy)
		byPrefix[k.Prefix] = append(byPrefix[k.Prefix], maker)
		byName[name] = append(byName[name], maker)
	}
	makersOf := func(p Person, name string) map[string]bool {
		first := byPrefix[p.Key]
		if len(first) == 0 {
			first = byName[name]
		}
		return allMakers(first, byName)
	}
	ofA, ofB := makersOf(a, nameA), makersOf(b, nameB)
	if nameA == nameB || ofA[nameB] || ofB[nameA] {
		return true
	}
	for maker := range ofA {
		if ofB[maker] && len(byName[maker]) > 0 {
			return true
		}
	}
	return false
}

// allMakers returns the makers of a key, the makers of their own keys, and so on. Every key
// of a maker counts, since receipts do not record with which of them another key was made. makersOf has the makers of
// the keys of each name.
func allMakers(makers []string, makersOf map[string][]string) map[string]bool {
	seen := map[string]bool{}
	for next := slices.Clone(makers); len(next) > 0; {
		name := next[0]
		if next = next[1:]; !seen[name] {
			seen[name] = true
			next = append(next, makersOf[name]...)
		}
	}
	return seen
}

// IsProgram reports whether a principal is a program: of any kind but user. A bare name is a person's on the local command
// line.
func IsProgram(principal string) bool {
	kind, _, isKind := strings.Cut(principal, ":")
	return isKind && kind != "user"
}

// SamePrincipal reports whether two names are of one principal: neither the case of letters tells them apart, nor user: before one.
func SamePrincipal(a, b string) bool { return folded(a) == folded(b) }

// folded returns a name in the form in which equal ones are of one principal. A bare name is that of a person.
func folded(principal string) string {
	if !strings.Contains(principal, ":") {
		principal = "user:" + principal
	}
	return strings.ToLower(principal)
}
