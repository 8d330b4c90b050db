package pg

import (
	"errors"
	"fmt"

	"github.com/lib/pq"
)

// ErrClosed is returned for a row that was handed to a batcher after it was closed.
var ErrClosed = errors.New("postgres: the batcher is closed")

// SQLState returns the SQLSTATE of an error that the server sent, else "".
func SQLState(err error) string {
	var e *pq.Error
	if errors.As(err, &e) {
		return string(e.Code)
	}
	return ""
}

// ViolatedConstraint returns the name of the constraint whose violation the server reports by err, else "".
func ViolatedConstraint(err error) string {
	var e *pq.Error
	if errors.As(err, &e) {
		return e.Constraint
	}
	return ""
}

// IsDataError reports whether the server refused a value or a constraint was violated: such
// an error belongs to one row of a batch, not to all of them.
func IsDataError(err error) bool {
	s := SQLState(err)
	return len(s) == 5 && (s[:2] == "22" || s[:2] == "23")
}

// IsContention reports whether the statement failed because of a lock or a conflict with
// another transaction. It wrote nothing then.
func IsContention(err error) bool {
	switch SQLState(err) {
	case "40001", "40P01", "55P03":
		return true
	}
	return false
}

// Wrap returns the error of a statement or a connection with the word postgres before it; nil stays nil.
func Wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("postgres: %w", err)
}
