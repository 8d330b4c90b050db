package postgres

import (
	"errors"
	"fmt"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
)

// What the journal answers beside the errors of package background.
var (
	ErrClosed         = errors.New("postgres: the journal is closed")
	ErrBusy           = background.ErrBusy
	ErrExceedsHeld    = errors.New("postgres: the escrow has no room for the amount")
	ErrEscrowMismatch = errors.New("postgres: the escrow holds another sum or currency")
	ErrIsolation      = errors.New("postgres: the transaction is not READ COMMITTED")
)

// sqlState is the SQLSTATE of an error that the server sent, else "".
func sqlState(err error) string {
	var e *pq.Error
	if errors.As(err, &e) {
		return string(e.Code)
	}
	return ""
}

// isDataError reports whether the server refused a value or a law: such an error
// belongs to one row of a batch, not to all of them.
func isDataError(err error) bool {
	s := sqlState(err)
	return len(s) == 5 && (s[:2] == "22" || s[:2] == "23")
}

// isContention reports whether the statement gave way to another transaction and
// wrote nothing.
func isContention(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01", "55P03":
		return true
	}
	return false
}

// busyOrUnavailable is the error of a transaction that may be asked for again when it gave way
// to another: it is ErrBusy then, else unavailable.
func busyOrUnavailable(err error) error {
	if isContention(err) {
		return ErrBusy
	}
	return unavailable(err)
}

// unrecordableOrUnavailable is the error of a statement with one row, which may be refused for its values:
// that is an answer, else the journal is unavailable.
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
