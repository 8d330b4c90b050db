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

// reserved are the kinds of principal that act without a key: the system itself, and rules.
var reserved = []string{"system", "rule"}

// CheckPrincipal returns what is wrong with the principal of a key: it is a kind and a name,
// such as user:ada or service:desk, and the kind is none that acts without a key.
func CheckPrincipal(text string) error {
	kind, _, _ := strings.Cut(text, ":")
	switch {
	case !principals.MatchString(text):
		return errors.New("must be a kind and a name, such as user:ada or service:desk: small letters, a colon, and 1 to 100 of A-Z a-z 0-9 . _ @ + -")
	case slices.Contains(reserved, kind):
		return errors.New(kind + ": is reserved for what acts without a key")
	}
	return nil
}

// CheckActor returns what is wrong with the name that somebody gives of themselves beside the
// database, where no key proves it. It may also be a bare name, such as root: no key has one.
func CheckActor(text string) error {
	switch {
	case text == "local":
		return errors.New("local is reserved for requests that need no key")
	case bareNames.MatchString(text):
		return nil
	}
	return CheckPrincipal(text)
}

// Person is who acts: a principal, and the prefix of the key that proves it. Key is empty
// where nothing proves the name.
type Person struct{ Principal, Key string }

// SamePerson reports whether two who act have to be taken for one person, by the keys that
// their tenant ever had: they have the same name, or one of them made the other's key, or the
// key with which that was made, and so on. Who made a key has held it. Two whose keys a third
// one made are different persons.
func SamePerson(a, b Person, keys []Key) bool {
	return a.Principal == b.Principal || madeBy(a, b.Principal, keys) || madeBy(b, a.Principal, keys)
}

// madeBy reports whether a principal is among the makers of a person's key. Of a maker any
// key counts, since no receipt tells with which one it made another.
func madeBy(p Person, maker string, keys []Key) bool {
	seen := map[string]bool{}
	next := makersOf(keys, func(k *Key) bool { return k.Prefix == p.Key })
	if len(next) == 0 {
		next = makersOf(keys, func(k *Key) bool { return k.Principal == p.Principal })
	}
	for len(next) > 0 {
		name := next[0]
		if next = next[1:]; name == maker {
			return true
		}
		if !seen[name] {
			seen[name] = true
			next = append(next, makersOf(keys, func(k *Key) bool { return k.Principal == name })...)
		}
	}
	return false
}

func makersOf(keys []Key, those func(*Key) bool) (out []string) {
	for i := range keys {
		if those(&keys[i]) {
			out = append(out, keys[i].CreatedBy)
		}
	}
	return out
}

// IsProgram reports whether a principal is no person but a program: a service, a rule, or
// the system itself.
func IsProgram(principal string) bool {
	return slices.ContainsFunc([]string{"service:", "rule:", "system:"}, func(kind string) bool { return strings.HasPrefix(principal, kind) })
}
