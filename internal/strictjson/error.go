package strictjson

import (
	"fmt"
	"strings"
)

// maxName is how long a name is repeated in a path, in bytes.
const maxName = 128

// Error is what is wrong with a text. Field is the path of the member at fault, its names joined by dots without
// the places in lists; it is empty when the text as a whole is at fault.
type Error struct {
	Field, Problem string

	syntax  bool     // the text is no JSON, whichever member it stops in
	members [][]byte // the members that hold the fault, the innermost first
}

func (e *Error) Error() string { return strings.TrimSpace(e.Field + " " + e.Problem) }

// within notes the name of a member that holds the fault.
func (e *Error) within(member []byte) *Error {
	if !e.syntax {
		e.members = append(e.members, member)
	}
	return e
}

// withPath writes the path of the fault from the names of the members that hold it.
func (e *Error) withPath() *Error {
	names := make([]string, len(e.members))
	for i, member := range e.members {
		names[len(names)-1-i] = Name(string(member))
	}
	e.Field, e.members = strings.Join(names, "."), nil
	return e
}

// Name returns how a path names a member: one that is long by its length.
func Name(member string) string {
	switch {
	case member == "":
		return `""` // keeps the empty name apart from none
	case len(member) > maxName:
		return fmt.Sprintf("(a name of %d bytes)", len(member))
	}
	return member
}
