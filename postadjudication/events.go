package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
)

// Position is a position in the order of events. Callers may compare, store and pass it back;
// its value has no other meaning. Positions increase; 0 is before the first event. Each tenant
// has its own positions, which reveal nothing about other tenants. Not every position has an
// event.
type Position = eventlog.Position

// Event is a public event with its position.
type Event = eventlog.Event

// Gap is what a reader of events is told when the database has lost the end of the order that it read.
type Gap = eventlog.Gap

// GapEvent is the type of the event with a Gap. No receipt has it.
const GapEvent = eventlog.GapEvent

// EventReader follows the events of a tenant: see Service.Follow.
type EventReader = eventlog.Reader

// MaxEvents is the maximum number of events per call.
const MaxEvents = eventlog.MaxEvents

// eventLog reads the public events of tenants. It declares the methods that callers know: go doc shows none of a type
// of another package.
type eventLog struct{ *eventlog.Log }

// Events returns events of a tenant after a position, oldest first, at most limit and at most MaxEvents, and the
// position to continue from. A reader that continues from it, or from the position of any event, misses nothing
// after that, also after a restart. Events of one case are in the order in which they happened. An empty tenant has
// no events. A caller that does not read the whole tenant gets the events of the runs that it may read, and after
// 10,000 receipts without any of them none, with a later position.
//
// A receipt becomes readable here shortly after its commit while any process runs; see DrainEvents. The position
// of an event that was read never changes.
//
// The error is a *refusal.FieldError if after is negative or beyond the tenant's newest position, or if limit is
// less than 1.
func (l eventLog) Events(ctx context.Context, tenant string, after Position, limit int) ([]Event, Position, error) {
	return l.Log.Events(ctx, tenant, after, limit)
}

// WaitEvents is Events that blocks until there is at least one event. When ctx is done it returns no events and no
// error. For an empty tenant it returns at once. It returns an event of the type GapEvent if the database loses the
// end of the order while it waits; Follow also notices that between two calls.
func (l eventLog) WaitEvents(ctx context.Context, tenant string, after Position, limit int) ([]Event, Position, error) {
	return l.Log.WaitEvents(ctx, tenant, after, limit)
}

// Follow returns a reader of a tenant's events after a position, for one goroutine.
func (l eventLog) Follow(tenant string, after Position) *EventReader {
	return l.Log.Follow(tenant, after)
}

// DrainEvents returns once everything committed before the call is readable as events. If no process runs, it
// numbers the receipts itself.
func (l eventLog) DrainEvents(ctx context.Context) error { return l.Log.DrainEvents(ctx) }
