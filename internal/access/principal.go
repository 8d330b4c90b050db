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
