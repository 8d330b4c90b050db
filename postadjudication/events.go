package postadjudication

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// Position is a place in the order of events: compare it, keep it, hand it back,
// make nothing else of it. Positions rise; the place before the first event is 0.
// Each tenant has its own, which tell nothing of another's. Not every position has an event.
type Position int64

// Event is a public event with its place in the order.
type Event struct {
	Position Position `json:"position"`
	receipts.Event
}

// MaxEvents is how many events one call gives at most.
const MaxEvents = 1000

// The receipt with the number n in the order of the tenant's receipts has its events from
// n*positionsPerReceipt on; the last position of the stretch stands for all of them.
const positionsPerReceipt = 8

// minReceiptPage are read together: some receipts have no event.
const minReceiptPage = 100

// Events reads a tenant's events in their order, strictly after a position (0 for
// the first), at most limit and at most MaxEvents of them. It gives the position
// to go on from; any event's own position may be used as well, also after a
// restart: whoever goes on from there misses nothing and sees nothing twice. Events
// of one case come in the order in which they happened. A position behind the newest one of the
// tenant is refused as a *FieldError of after: none was given.
//
// A receipt is readable here some moments after its commit, as long as any process
// runs, see Run and DrainEvents; once read, an event's place never changes. No
// tenant means no events.
func (s *Service) Events(ctx context.Context, tenant string, after Position, limit int) ([]Event, Position, error) {
	if err := checkEventPage(after, limit); err != nil || tenant == "" {
		return nil, after, err
	}
	events, next, err := s.eventsAfter(ctx, tenant, after, limit)
	if err == nil && next == after {
		err = s.checkPosition(ctx, tenant, after)
	}
	if err != nil {
		return nil, after, err
	}
	return events, next, nil
}

// checkPosition refuses a position that no event of the tenant has reached: whoever goes on from
// there would miss all that comes until then.
func (s *Service) checkPosition(ctx context.Context, tenant string, after Position) error {
	if after == 0 {
		return nil
	}
	last, err := s.journal.LastNumberOf(ctx, tenant)
	if err != nil {
		return err
	}
	if newest := Position(last*positionsPerReceipt + positionsPerReceipt - 1); after > newest {
		return &FieldError{Field: "after", Problem: fmt.Sprintf(
			"is beyond %d, the newest position of the tenant: it is of another tenant, of an older program or of a database that was restored since; begin with a position that is known to be good, or with 0", newest)}
	}
	return nil
}

// eventsAfter is Events of what is to be read.
func (s *Service) eventsAfter(ctx context.Context, tenant string, after Position, limit int) ([]Event, Position, error) {
	limit = min(limit, MaxEvents)
	var out []Event
	for len(out) < limit {
		from, want := (int64(after)+1)/positionsPerReceipt, max(limit-len(out), minReceiptPage)
		page, err := s.journal.ReceiptsFrom(ctx, tenant, from, want)
		if err != nil {
			return nil, after, err
		}
		for _, r := range page {
			events, err := receipts.Events(r.Receipt)
			if err != nil {
				return nil, after, err
			}
			first := Position(r.Position * positionsPerReceipt)
			for i, e := range events {
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
		return &FieldError{Field: "after", Problem: "is negative"}
	case limit < 1:
		return &FieldError{Field: "limit", Problem: "must be at least 1"}
	}
	return nil
}

// How often a waiting reader looks by itself; events that this process numbered
// wake it.
const (
	eventsPauseMin = 20 * time.Millisecond
	eventsPauseMax = 500 * time.Millisecond
)

// WaitEvents is Events that waits: it returns as soon as there is at least one
// event, and when ctx ends, then with none and without an error. No tenant means no
// events, at once.
func (s *Service) WaitEvents(ctx context.Context, tenant string, after Position, limit int) ([]Event, Position, error) {
	if tenant == "" {
		return s.Events(ctx, tenant, after, limit)
	}
	read := s.Events
	for pause := eventsPauseMin; ; pause = min(2*pause, eventsPauseMax) {
		wake := s.eventSignals.wait(tenant)
		events, next, err := read(ctx, tenant, after, limit)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, after, nil
		case err != nil || len(events) > 0:
			return events, next, err
		}
		after, read = next, s.eventsAfter // the position is checked once
		if !sleepOr(ctx, pause, wake) {
			return nil, after, nil
		}
	}
}

// DrainEvents returns when everything that was committed before the call is
// readable as events. Where no process runs it does the numbering itself.
func (s *Service) DrainEvents(ctx context.Context) error { return s.journal.DrainOutbox(ctx) }

// Times of the sequencer. Steps are at least sequencePauseMin apart, so that one
// step takes what many commits left.
const (
	sequencePauseMin = 20 * time.Millisecond
	sequencePauseMax = time.Second

	// sequenceCostFactor bounds what a step may cost: the pause after it is this many
	// times its length, also when dead rows that can't be vacuumed slow it down.
	sequenceCostFactor = 4
)

// sequencer gives committed receipts their places in the order of events, as long
// as no other process does. It looks every second when nothing happens, and soon
// after this process has committed something.
type sequencer struct {
	journal *postgres.Journal
	signals *eventSignals
	log     *zap.Logger
}

// run works until ctx ends.
func (q sequencer) run(ctx context.Context) {
	s := q.journal.Sequencer()
	defer func() {
		if err := s.Release(); err != nil {
			q.log.Warn("the sequencer's connection did not end well; the server ends it when it stands still", zap.Error(err))
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
				q.log.Error("events can't be numbered, trying on", zap.Error(err))
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

// wait pauses for at least the first time, and for the second unless this process
// has committed something that it may number. It reports false when ctx ends.
func (q sequencer) wait(ctx context.Context, least, most time.Duration, holds bool) bool {
	if !sleepOr(ctx, least, nil) {
		return false
	}
	var committed <-chan struct{}
	if holds {
		committed = q.journal.Committed()
	}
	return most <= least || sleepOr(ctx, most-least, committed)
}

// sleepOr lets a time pass, or less when something arrives. It reports false when ctx
// ends.
func sleepOr(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// eventSignals tells readers of this process that a tenant has new events.
type eventSignals struct {
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

// wait is closed when the tenant has events that are numbered after the call.
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
