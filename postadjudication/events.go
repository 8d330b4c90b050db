package postadjudication

import "github.com/recourse-dev/recourse/postadjudication/internal/eventlog"

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

// eventLog reads the public events of tenants.
type eventLog = eventlog.Log
