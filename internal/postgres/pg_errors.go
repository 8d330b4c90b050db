package postgres

import (
	"errors"
	"fmt"

	"github.com/lib/pq"
)

// ErrClosed is returned for a row that was handed to a batcher after it was closed.
var ErrClosed = errors.New("postgres: the journal is closed")

// sqlState returns the SQLSTATE of an error that the server sent, else "".
func sqlState(err error) string {
	var e *pq.Error
	if errors.As(err, &e) {
		return string(e.Code)
	}
	return ""
}

// isDataError reports whether the server refused a value or a constraint was violated: such
// an error belongs to one row of a batch, not to all of them.
func isDataError(err error) bool {
	s := sqlState(err)
	return len(s) == 5 && (s[:2] == "22" || s[:2] == "23")
}

// isContention reports whether the statement failed because of a lock or a conflict with
// another transaction. It wrote nothing then.
func isContention(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01", "55P03":
		return true
	}
	return false
}

// unavailable wraps the error of a statement or a connection.
func unavailable(err error) error { return fmt.Errorf("postgres: %w", err) }

func unavailableOrNil(err error) error {
	if err == nil {
		return nil
	}
	return unavailable(err)
}
