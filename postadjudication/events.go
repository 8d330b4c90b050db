package postadjudication

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
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
}

// MaxEvents is the maximum number of events per call.
const MaxEvents = 1000

// The receipt with number n of a tenant has its events from position n*positionsPerReceipt on.
// The last position of that range stands for the whole receipt.
const positionsPerReceipt = 8

// minReceiptPage is the minimum number of receipts per read, since some have no event.
const minReceiptPage = 100

// eventLog reads the public events of tenants.
type eventLog struct {
	journal *journal.Journal
	signals eventSignals
}

// Events returns a tenant's events in order, strictly after a position (0: from the first), at
// most limit and at most MaxEvents. It returns the position to continue from. The position of
// any event works too, also after a restart: a reader that continues from it misses nothing and
// reads nothing twice. Events of one case are in the order in which they happened. An empty
// tenant has no events.
//
// A receipt becomes readable here shortly after its commit while any process runs; see Run and
// DrainEvents. The position of an event that was read never changes.
//
// Invalid input is a *FieldError, of after also if the position is beyond the tenant's newest
// one.
func (e *eventLog) Events(ctx context.Context, tenant string, after Position, limit int) ([]Event, Position, error) {
	if err := checkEventPage(after, limit); err != nil || tenant == "" {
		return nil, after, err
	}
	found, next, err := e.eventsAfter(ctx, tenant, after, limit)
	if err == nil && next == after {
		err = e.checkPosition(ctx, tenant, after)
	}
	if err != nil {
		return nil, after, err
	}
	return found, next, nil
}

// checkPosition refuses a position beyond the tenant's newest one: a reader that continues from
// it would miss all events up to it.
func (e *eventLog) checkPosition(ctx context.Context, tenant string, after Position) error {
	if after == 0 {
		return nil
	}
	newest, err := e.NewestPosition(ctx, tenant)
	if err != nil {
		return err
	}
	if after > newest {
		return &refusal.FieldError{Field: "after", Problem: fmt.Sprintf(
			"is beyond %d, the newest position of the tenant: it is from another tenant, an older version or a database that was restored since; start from a position known to be valid, or from 0", newest)}
	}
	return nil
}

// NewestPosition returns the last position of a tenant's events that is readable now: Events after it
// are those that become readable later.
func (e *eventLog) NewestPosition(ctx context.Context, tenant string) (Position, error) {
	last, err := e.journal.Receipts.LastNumberOfTenant(ctx, tenant)
	return Position(last*positionsPerReceipt + positionsPerReceipt - 1), err
}

// eventsAfter is Events without validation.
func (s *eventLog) eventsAfter(ctx context.Context, tenant string, after Position, limit int) ([]Event, Position, error) {
	limit = min(limit, MaxEvents)
	var out []Event
	for len(out) < limit {
		from, want := int64(after)/positionsPerReceipt, max(limit-len(out), minReceiptPage)
		if int64(after)%positionsPerReceipt == positionsPerReceipt-1 { // nothing is left of that receipt
			from++
		}
		page, err := s.journal.Receipts.From(ctx, tenant, from, want)
		if err != nil {
			return nil, after, err
		}
		for _, r := range page {
			public, err := events.Of(r.Receipt)
			if err != nil {
				return nil, after, err
			}
			first := Position(r.Number * positionsPerReceipt)
			for i, e := range public {
				at := first + Position(i)
				if at <= after {
					continue
				}
				out, after = append(out, Event{at, e}), at
				if len(out) == limit {
					return out, after, nil
				}
			}
			after = first + positionsPerReceipt - 1
		}
		if len(page) < want {
			break
		}
	}
	return out, after, nil
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

// Poll interval of a waiting reader. Events that this process numbers wake it earlier.
const (
	eventsPauseMin = 20 * time.Millisecond
	eventsPauseMax = 500 * time.Millisecond
)

// WaitEvents is Events that blocks until there is at least one event. When ctx is done it
// returns no events and no error. For an empty tenant it returns at once.
func (e *eventLog) WaitEvents(ctx context.Context, tenant string, after Position, limit int) ([]Event, Position, error) {
	if tenant == "" {
		return e.Events(ctx, tenant, after, limit)
	}
	read := e.Events
	for pause := eventsPauseMin; ; pause = min(2*pause, eventsPauseMax) {
		wake := e.signals.wait(tenant)
		found, next, err := read(ctx, tenant, after, limit)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, after, nil
		case err != nil || len(found) > 0:
			return found, next, err
		}
		after, read = next, e.eventsAfter // the position is checked once
		if !casework.Sleep(ctx, pause, wake) {
			return nil, after, nil
		}
	}
}

// DrainEvents returns once everything committed before the call is readable as events. If no
// process runs, it numbers the receipts itself.
func (e *eventLog) DrainEvents(ctx context.Context) error { return e.journal.Outbox.Drain(ctx) }

// Times of the sequencer. Steps are at least sequencePauseMin apart, so that one step numbers
// the receipts of many commits.
const (
	sequencePauseMin = 20 * time.Millisecond
	sequencePauseMax = time.Second

	// sequenceCostFactor limits the cost of steps: the pause after a step is this many times
	// its duration, also when dead rows that can't be vacuumed slow it down.
	sequenceCostFactor = 4
)

// sequencer assigns committed receipts their positions in the order of events, in one process
// at a time. It runs every second when idle, and soon after a commit of this process.
type sequencer struct {
	journal *journal.Journal
	signals *eventSignals
	log     *zap.Logger
}

// run works until ctx is done.
func (q sequencer) run(ctx context.Context) {
	s := q.journal.Outbox.Sequencer()
	defer func() {
		if err := s.Release(); err != nil {
			q.log.Warn("could not release the connection of the sequencer; the database ends it when it is idle", zap.Error(err))
		}
	}()
	pause, failing := sequencePauseMin, false
	for {
		begin := time.Now()
		step, err := s.Step(ctx)
		took := time.Since(begin)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				q.log.Error("could not number events, retrying", zap.Error(err))
			}
			pause = sequencePauseMax
		case !step.Holds:
			pause = sequencePauseMax
		case step.Rows == 0:
			pause = min(2*pause, sequencePauseMax)
		default:
			pause = sequencePauseMin
		}
		failing = err != nil
		q.signals.broadcast(step.Tenants)
		if step.More {
			continue
		}
		if !q.wait(ctx, max(sequencePauseMin, sequenceCostFactor*took), pause, step.Holds) {
			return
		}
	}
}

// wait pauses for least, then up to most unless this process commits something that it may
// number. It reports false if ctx is done.
func (q sequencer) wait(ctx context.Context, least, most time.Duration, holds bool) bool {
	if !casework.Sleep(ctx, least, nil) {
		return false
	}
	var committed <-chan struct{}
	if holds {
		committed = q.journal.Committed()
	}
	return most <= least || casework.Sleep(ctx, most-least, committed)
}

// eventSignals wakes readers in this process when a tenant has new events.
type eventSignals struct {
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

// wait returns a channel that is closed when events of the tenant are numbered after the call.
func (a *eventSignals) wait(tenant string) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[string]chan struct{}{}
	}
	c, ok := a.waiting[tenant]
	if !ok {
		c = make(chan struct{})
		a.waiting[tenant] = c
	}
	return c
}

func (a *eventSignals) broadcast(tenants []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range tenants {
		if c, ok := a.waiting[t]; ok {
			close(c)
			delete(a.waiting, t)
		}
	}
}

// Receipts returns at most limit receipts of a tenant's case in order, beginning after the
// sequence number after (0 for the first).
func (s *Service) Receipts(ctx context.Context, tenant string, caseID background.CaseID, after int64, limit int) ([]receipts.Receipt, error) {
	return s.journal.Receipts.Trail(ctx, tenant, caseID, journal.TrailPosition{Case: caseID, Seq: after}, limit)
}
