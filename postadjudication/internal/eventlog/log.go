package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

// Position is a position in the order of events. Callers may compare, store and pass it back;
// its value has no other meaning. Positions increase; 0 is before the first event. Each tenant
// has its own positions, which reveal nothing about other tenants. Not every position has an
// event.
type Position int64

// Event is a public event with its position.
type Event struct {
	Position Position `json:"position"`
	events.Event
	Gap *Gap `json:"gap,omitempty"` // of the type GapEvent only
}

// MaxEvents is the maximum number of events per call.
const MaxEvents = 1000

// PositionsPerReceipt is how many positions each receipt has in the order of events, more than it ever has
// events.
const PositionsPerReceipt = stored.PositionsPerReceipt

const (
	// minReceiptPage is the minimum number of receipts per read, since some have no event.
	minReceiptPage = 100
	// maxSkippedPages bounds the reads of receipts of which the caller may read nothing. Each has maxSkippedPage receipts.
	maxSkippedPages = 10
	maxSkippedPage  = 1000
)

// Log reads the public events of tenants. New makes one. It is safe for concurrent use.
type Log struct {
	journal *journal.Journal
	signals signals
}

// New returns the log of a journal.
func New(j *journal.Journal) *Log { return &Log{journal: j} }

// Events returns a tenant's events in order, strictly after a position (0: from the first), at
// most limit and at most MaxEvents. It returns the position to continue from. A reader that continues from it,
// or from the position of any event, misses nothing after that, also after a restart. Events of one case are in
// the order in which they happened. An empty tenant has no events. A caller that does not read the whole tenant gets the
// events of the runs that it may read, and after 10,000 receipts without any of them none, with a later position.
//
// A receipt becomes readable here shortly after its commit while any process runs; see Sequence and
// DrainEvents. The position of an event that was read never changes.
//
// The error is a *refusal.FieldError if after is negative or beyond the tenant's newest position, or if limit is
// less than 1.
func (l *Log) Events(ctx context.Context, tenant string, after Position, limit int) ([]Event, Position, error) {
	if err := checkEventPage(after, limit); err != nil || tenant == "" {
		return nil, after, err
	}
	found, next, err := l.After(ctx, tenant, after, limit)
	if err == nil && next == after {
		err = l.checkPosition(ctx, tenant, after)
	}
	if err != nil {
		return nil, after, err
	}
	return found, next, nil
}

// checkPosition refuses a position beyond the tenant's newest one: a reader that continues from
// it would miss all events up to it.
func (l *Log) checkPosition(ctx context.Context, tenant string, after Position) error {
	if after == 0 {
		return nil
	}
	newest, err := l.NewestPosition(ctx, tenant)
	if err != nil {
		return err
	}
	if after > newest {
		return &refusal.FieldError{Field: "after", Problem: fmt.Sprintf(
			"is beyond %d, the newest position of the tenant: it is from another tenant, an older version or a database that was restored since; start from a position known to be valid, or from 0", newest)}
	}
	return nil
}

// NewestPosition returns the last position that a tenant has now. Events that become readable later have
// positions after it.
func (l *Log) NewestPosition(ctx context.Context, tenant string) (Position, error) {
	last, err := l.journal.Receipts.LastNumberOfTenant(ctx, tenant)
	return Position(last*PositionsPerReceipt + PositionsPerReceipt - 1), err
}

// ErrUnreadable means that the next receipt can't be read as events. A newer version wrote it, or somebody
// altered it.
var ErrUnreadable = errors.New("the next event can't be read")

// After is Events without validation, for readers inside the service.
func (l *Log) After(ctx context.Context, tenant string, after Position, limit int) ([]Event, Position, error) {
	out, next, _, err := l.read(ctx, tenant, after, limit)
	return out, next, err
}

// read is After that also returns the last receipt that it read; zero if it read none.
func (l *Log) read(ctx context.Context, tenant string, after Position, limit int) (out []Event, next Position, mark journal.Mark, err error) {
	limit = min(limit, MaxEvents)
	least := minReceiptPage
	limited := casework.CallerOf(ctx).ReadsOnlyOf != ""
	if limited {
		least = maxSkippedPage
	}
	for reads := 0; len(out) < limit && (!limited || reads < maxSkippedPages); reads++ {
		from, want := int64(after)/PositionsPerReceipt, max(limit-len(out), least)
		if int64(after)%PositionsPerReceipt == PositionsPerReceipt-1 { // nothing is left of that receipt
			from++
		}
		page, err := l.journal.Receipts.From(ctx, tenant, from, want)
		if err != nil {
			return nil, after, mark, err
		}
		may, err := l.readable(ctx, tenant, page)
		if err != nil {
			return nil, after, mark, err
		}
		for _, r := range page {
			public, err := events.Of(r.Receipt)
			switch {
			case err != nil && len(out) > 0: // those before it can be read
				return out, after, mark, nil
			case err != nil:
				return nil, after, mark, fmt.Errorf("%w: %w", ErrUnreadable, err)
			}
			mark = journal.Mark{Number: r.Number, Link: r.Link}
			first := Position(r.Number * PositionsPerReceipt)
			for i, e := range public {
				at := first + Position(i)
				if at <= after || !may(r.Run) {
					continue
				}
				out, after = append(out, Event{Position: at, Event: e}), at
				if len(out) == limit {
					return out, after, mark, nil
				}
			}
			after = first + PositionsPerReceipt - 1
		}
		if len(page) < want {
			break
		}
	}
	return out, after, mark, nil
}

// readable returns whether the caller may read the events of a run, for those of a page.
func (l *Log) readable(ctx context.Context, tenant string, page []journal.NumberedReceipt) (func(receipts.RunID) bool, error) {
	ids := make([]receipts.RunID, len(page))
	for i := range page {
		ids[i] = page[i].Run
	}
	return casework.Permitted(ctx, l.journal, tenant, ids)
}

func checkEventPage(after Position, limit int) error {
	switch {
	case after < 0:
		return &refusal.FieldError{Field: "after", Problem: "is negative"}
	case limit < 1:
		return &refusal.FieldError{Field: "limit", Problem: "must be at least 1"}
	}
	return nil
}

// The poll interval of a waiting reader begins with PauseMin and doubles up to PauseMax. Events
// that this process numbers wake it earlier.
const (
	PauseMin = 20 * time.Millisecond
	PauseMax = 500 * time.Millisecond
)

// WaitEvents is Events that blocks until there is at least one event. When ctx is done it
// returns no events and no error. For an empty tenant it returns at once. It tells of a gap as Reader.Next does, if the
// database loses the end of the order while it waits; Follow also notices that between two calls.
func (l *Log) WaitEvents(ctx context.Context, tenant string, after Position, limit int) ([]Event, Position, error) {
	return l.Follow(tenant, after).Next(ctx, limit, func(_ context.Context, _ string, read func()) error {
		read()
		return nil
	})
}

// poll calls read until it has found something, fails, or ctx is done, which is no error.
func (l *Log) poll(ctx context.Context, tenant string, read func() (found bool, err error)) error {
	for pause := PauseMin; ; pause = min(2*pause, PauseMax) {
		wake := l.signals.wait(tenant)
		found, err := read()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil || found || tenant == "":
			return err
		}
		if !casework.Sleep(ctx, pause, wake) {
			return nil
		}
	}
}

// Signal returns a channel that is closed when this process numbers events of the tenant after the
// call.
func (l *Log) Signal(tenant string) <-chan struct{} { return l.signals.wait(tenant) }

// DrainEvents returns once everything committed before the call is readable as events. If no
// process runs, it numbers the receipts itself.
func (l *Log) DrainEvents(ctx context.Context) error { return l.journal.Outbox.Drain(ctx) }
