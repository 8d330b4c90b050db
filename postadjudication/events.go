package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// Position is a position in the order of events. Callers may compare, store and pass it back;
// its value has no other meaning. Positions increase; 0 is before the first event. Each tenant
// has its own positions, which reveal nothing about other tenants. Not every position has an
// event.
type Position = eventlog.Position

// Event is a public event with its position.
type Event = eventlog.Event

// MaxEvents is the maximum number of events per call.
const MaxEvents = eventlog.MaxEvents

// eventLog reads the public events of tenants.
type eventLog = eventlog.Log

// Receipts returns at most limit receipts of a tenant's case in order, beginning after the
// sequence number after (0 for the first).
func (s *Service) Receipts(ctx context.Context, tenant string, caseID background.CaseID, after int64, limit int) ([]receipts.Receipt, error) {
	return s.journal.Receipts.Trail(ctx, tenant, caseID, journal.TrailPosition{Case: caseID, Seq: after}, limit)
}
