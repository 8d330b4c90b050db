package spec

import (
	"regexp"

	"github.com/google/uuid"
)

// The limits of names, in bytes.
const (
	maxType  = 255
	maxQueue = 128
)

var (
	queuePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)
	typePattern  = regexp.MustCompile(`^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)*$`)
)

// ValidQueue reports whether a text is the name of a queue.
func ValidQueue(s string) bool { return len(s) <= maxQueue && queuePattern.MatchString(s) }

// validType reports whether a text is a type of jobs. The core document forbids a dash in a segment; the
// API document and clients have it.
func validType(s string) bool { return len(s) <= maxType && typePattern.MatchString(s) }

const (
	queueProblem = "must be lower-case letters, digits, dashes and dots, begin with a letter or digit, and be at most 128 bytes"
	typeProblem  = "must be segments of lower-case letters, digits, dashes and underscores that begin with a letter, joined by dots, and be at most 255 bytes"
)

// ValidID reports whether a text is the id of a job: a UUIDv7 in lower case, with hyphens.
func ValidID(s string) bool {
	id, ok := canonicalUUID(s)
	return ok && id.Version() == 7 && id.Variant() == uuid.RFC4122
}

// canonicalUUID reads a UUID in lower case, with hyphens, of any version.
func canonicalUUID(s string) (uuid.UUID, bool) {
	if len(s) != 36 {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(s)
	return id, err == nil && id.String() == s
}

// Version is the version of the specification, as the header OJS-Version and the member specversion of
// every answer have it.
const Version = "1.0"

var versionPattern = regexp.MustCompile(`^1\.0(\.\d{1,9})?(-[0-9A-Za-z.-]{1,64})?$`)

// CheckVersion refuses a version that is not of the family 1.0, which 1.0, 1.0.0 and 1.0.0-rc.1 are: 422.
// The field is the header or member that has it.
func CheckVersion(field, version string) error {
	if !versionPattern.MatchString(version) {
		return wrongVersion(field)
	}
	return nil
}

func wrongVersion(field string) *Error {
	return Unsupported(field, "must be a version of the family %s", Version)
}
