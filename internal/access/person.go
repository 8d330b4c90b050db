package access

import (
	"slices"
	"strings"
)

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
