package webhookdelivery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

// eventSource is what feeds read; *eventlog.Log implements it.
type eventSource interface {
	After(ctx context.Context, tenant string, after eventlog.Position, limit int) ([]eventlog.Event, eventlog.Position, error)
	Signal(tenant string) <-chan struct{}
}

// message is an event as it is sent. All webhooks of the tenant share it.
type message struct {
	position int64
	caseID   receipts.CaseID
	id       string
	typ      events.Type
	at       time.Time

	render func() ([]byte, error) // once; the body
}

func newMessage(e eventlog.Event) *message {
	return &message{position: int64(e.Position), caseID: e.Case, id: e.ID, typ: e.Type, at: e.At, render: sync.OnceValues(func() ([]byte, error) { return render(e) })}
}

// errNoEvent means that a webhook waits for an event at a position that has none.
var errNoEvent = errors.New("an event that waits to be sent can't be found at its position; replay the webhook from an earlier one")

// keptMessages is how many of the newest events a feed keeps for webhooks that follow.
const keptMessages = 128

// feed reads the events of one tenant for all of its webhooks. Those at the newest event share one
// reader and what it read; one that is behind reads for itself.
type feed struct {
	source eventSource
	pace   *pacer
	tenant string

	mu      sync.Mutex
	kept    []*message // the events after low, up to high
	low     int64
	high    int64         // the position up to which the feed has read
	reading bool          // a caller reads after high
	changed chan struct{} // closed, and replaced, when reading becomes false
}

func newFeed(source eventSource, pace *pacer, tenant string) *feed {
	return &feed{source: source, pace: pace, tenant: tenant, changed: make(chan struct{})}
}

// next returns events strictly after a position, at most limit, and the position to continue from.
// It blocks until there is one or a later position, or ctx is done.
func (f *feed) next(ctx context.Context, after int64, limit int) ([]*message, int64, error) {
	for {
		f.mu.Lock()
		switch {
		case after < f.low:
			f.mu.Unlock()
			return f.read(ctx, after, limit)
		case after < f.high:
			defer f.mu.Unlock()
			found, to := f.keptAfter(after, limit)
			return found, to, nil
		case after > f.high:
			f.low, f.high, f.kept = after, after, nil
		}
		changed, leads := f.changed, !f.reading
		f.reading = true
		f.mu.Unlock()
		if leads {
			if err := f.extend(ctx, after); err != nil {
				return nil, after, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil, after, ctx.Err()
		case <-changed:
		}
	}
}

// keptAfter returns kept events after a position.
func (f *feed) keptAfter(after int64, limit int) ([]*message, int64) {
	for i, m := range f.kept {
		if m.position > after {
			found := f.kept[i:min(i+limit, len(f.kept))]
			if len(found) == limit {
				return found, found[limit-1].position
			}
			return found, f.high
		}
	}
	return nil, f.high
}

// extend reads after position from, which equals f.high, until it reads something, and keeps that.
func (f *feed) extend(ctx context.Context, from int64) (err error) {
	var found []*message
	to := from
	for pause := eventlog.PauseMin; err == nil && to == from; pause = min(2*pause, eventlog.PauseMax) {
		signal := f.source.Signal(f.tenant)
		if found, to, err = f.read(ctx, from, keptMessages); err != nil || to > from {
			break
		}
		if !casework.Sleep(ctx, pause, signal) {
			err = ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.high == from { // else a webhook that is further ahead has moved the feed
		f.high = to
		if f.kept = append(f.kept, found...); len(f.kept) > keptMessages {
			f.low = f.kept[len(f.kept)-keptMessages-1].position
			f.kept = append([]*message(nil), f.kept[len(f.kept)-keptMessages:]...)
		}
	}
	f.reading = false
	close(f.changed)
	f.changed = make(chan struct{})
	return err
}

// read reads events from the log, at its pace.
func (f *feed) read(ctx context.Context, after int64, limit int) ([]*message, int64, error) {
	var found []eventlog.Event
	to := eventlog.Position(after)
	var err error
	if paceErr := f.pace.read(ctx, func() bool {
		found, to, err = f.source.After(ctx, f.tenant, to, limit)
		return err == nil && int64(to) > after
	}); err == nil {
		err = paceErr
	}
	if err != nil {
		return nil, after, err
	}
	out := make([]*message, len(found))
	for i, e := range found {
		out[i] = newMessage(e)
	}
	return out, int64(to), nil
}

// at reads the events at positions, of which each has one.
func (f *feed) at(ctx context.Context, positions []int64) ([]*message, error) {
	var out []*message
	for len(positions) > 0 {
		page, _, err := f.read(ctx, positions[0]-1, MaxWaiting)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 || page[0].position != positions[0] {
			return nil, errNoEvent
		}
		for _, m := range page {
			if len(positions) > 0 && m.position == positions[0] {
				out, positions = append(out, m), positions[1:]
			}
		}
	}
	return out, nil
}
