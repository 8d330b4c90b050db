package journal

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// Errors of the journal, beside those of package background.
var (
	ErrBusy           = background.ErrBusy
	ErrExceedsHeld    = errors.New("journal: the amount exceeds what the escrow has left")
	ErrEscrowMismatch = errors.New("journal: the escrow holds another sum or currency")
	ErrReturnRecorded = errors.New("journal: a return with this reference is recorded")
	ErrIsolation      = errors.New("journal: the transaction is not READ COMMITTED")
)

// ErrNoChange is returned by a decision that changes nothing.
var ErrNoChange = errors.New("journal: nothing to change")

// busyOrWrapped returns ErrBusy after contention, when the transaction may be tried again, else err
// wrapped.
func busyOrWrapped(err error) error {
	if pg.IsContention(err) {
		return ErrBusy
	}
	return pg.Wrap(err)
}

// unrecordableOrWrapped classifies the error of a statement with one row: background.ErrUnrecordable
// if its values were refused, which is final, else err wrapped.
func unrecordableOrWrapped(err error) error {
	if pg.IsDataError(err) {
		return unrecordable(err)
	}
	return pg.Wrap(err)
}

func unrecordable(err error) error {
	return fmt.Errorf("journal: %w: %w", background.ErrUnrecordable, err)
}

// IsUnavailable reports whether err means that the journal can't write at the moment, so that trying
// again with fewer rows does not help. Unlike the outage that the HTTP API answers with 503, that
// includes contention and every read-only transaction, but no timeout: fewer rows may help after one.
func IsUnavailable(err error) bool {
	var broken *net.OpError
	switch state := pg.SQLState(err); {
	case errors.Is(err, ErrBusy), errors.Is(err, pg.ErrClosed), errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, io.EOF), errors.As(err, &broken):
		return true
	case len(state) != 5 || state == "57014":
		return false
	default: // connection, read-only, contention, resources, locks, shutdown, its files
		return slices.Contains([]string{"08", "25", "40", "53", "55", "57", "58"}, state[:2])
	}
}
