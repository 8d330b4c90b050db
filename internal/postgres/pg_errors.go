package postgres

import (
	"errors"
	"fmt"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
)

// Errors of the journal, beside those of package background.
var (
	ErrClosed         = errors.New("postgres: the journal is closed")
	ErrBusy           = background.ErrBusy
	ErrExceedsHeld    = errors.New("postgres: the amount exceeds what the escrow has left")
	ErrEscrowMismatch = errors.New("postgres: the escrow holds another sum or currency")
	ErrIsolation      = errors.New("postgres: the transaction is not READ COMMITTED")
)

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

// busyOrUnavailable returns ErrBusy after contention, when the transaction may be tried
// again, else err as unavailable.
func busyOrUnavailable(err error) error {
	if isContention(err) {
		return ErrBusy
	}
	return unavailable(err)
}

// unrecordableOrUnavailable classifies the error of a statement with one row:
// background.ErrUnrecordable if its values were refused, which is final, else unavailable.
func unrecordableOrUnavailable(err error) error {
	if isDataError(err) {
		return unrecordable(err)
	}
	return unavailable(err)
}

func unrecordable(err error) error {
	return fmt.Errorf("postgres: %w: %w", background.ErrUnrecordable, err)
}

func unavailable(err error) error { return fmt.Errorf("postgres: %w", err) }
