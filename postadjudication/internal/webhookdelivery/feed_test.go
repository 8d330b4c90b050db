package webhookdelivery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

func idle() uint64 { return 0 }

// growingLog is a log in memory: it has an event at every second position.
type growingLog struct {
	mu      sync.Mutex
	newest  int64
	changed chan struct{}
	reads   int
	fails   error
}

func (l *growingLog) grow(to int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = to
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *growingLog) Signal(string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *growingLog) After(_ context.Context, tenant string, after eventlog.Position, limit int) (out []eventlog.Event, next eventlog.Position, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reads++; l.fails != nil {
		return nil, after, l.fails
	}
	for next = after; int64(next) < l.newest; {
		if next++; next%2 == 0 {
			if out = append(out, eventlog.Event{Position: next, Event: events.Event{ID: "e", Tenant: tenant, Case: receipts.CaseID{1}}}); len(out) == limit {
				break
			}
		}
	}
	return out, next, nil
}

// Readers at every place, of any speed, each see every event once and in order, while the log
// grows.
func TestEveryReaderOfAFeedSeesEveryEvent(t *testing.T) {
	t.Parallel()
	log := &growingLog{changed: make(chan struct{})}
	f := newFeed(log, newPacer(idle), "acme")
	const newest = 3000
	var wg sync.WaitGroup
	for n := range 8 {
		start := int64(n * 100)
		wg.Go(func() {
			at, last := start, start-start%2
			for at < newest {
				got, next, err := f.next(context.Background(), at, 1+n*7)
				if err != nil || next < at || len(got) > 1+n*7 {
					t.Errorf("%d events, %d after %d, %v", len(got), next, at, err)
					return
				}
				for _, m := range got {
					if m.position != last+2 || m.position > next {
						t.Errorf("%d came after %d, up to %d", m.position, last, next)
						return
					}
					last = m.position
				}
				at = next
			}
		})
	}
	for to := int64(0); to <= newest; to += 50 {
		log.grow(to)
	}
	wg.Wait()
}

// Webhooks that follow share what one of them has read.
func TestReadersAtTheNewestEventShareOneRead(t *testing.T) {
	t.Parallel()
	log := &growingLog{changed: make(chan struct{}), newest: 100}
	f := newFeed(log, newPacer(idle), "acme")
	if got, next, err := f.next(context.Background(), 0, 200); err != nil || len(got) != 50 || next != 100 {
		t.Fatalf("%d, %d, %v", len(got), next, err)
	}
	first, _, err := f.next(context.Background(), 10, 3)
	if err != nil {
		t.Fatal(err)
	}
	again, next, err := f.next(context.Background(), 10, 3)
	if err != nil || next != 16 || !slices.Equal(first, again) || log.reads != 1 {
		t.Errorf("%d, %v, %d reads", next, err, log.reads)
	}
}

// A reader that leaves while it reads for the others leaves that to another.
func TestAReaderThatLeavesIsReplaced(t *testing.T) {
	t.Parallel()
	log := &growingLog{changed: make(chan struct{})}
	f := newFeed(log, newPacer(idle), "acme")
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		_, _, err := f.next(ctx, 0, 10)
		left <- err
	}()
	stays := make(chan int64, 1)
	go func() {
		_, next, err := f.next(context.Background(), 0, 10)
		if err != nil {
			t.Error(err)
		}
		stays <- next
	}()
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	log.grow(4)
	if next := <-stays; next != 4 {
		t.Errorf("%d", next)
	}
	log.mu.Lock()
	log.fails = errors.New("the database is away")
	log.mu.Unlock()
	if _, _, err := f.next(context.Background(), 4, 10); !errors.Is(err, log.fails) {
		t.Errorf("%v", err)
	}
}

func TestEventsAreFoundByTheirPositions(t *testing.T) {
	t.Parallel()
	log := &growingLog{changed: make(chan struct{}), newest: 5000}
	f := newFeed(log, newPacer(idle), "acme")
	want := []int64{2, 4, 600, 4998, 5000}
	got, err := f.at(context.Background(), want)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d, %v", len(got), err)
	}
	for i, m := range got {
		if m.position != want[i] {
			t.Errorf("%d, not %d", m.position, want[i])
		}
	}
	for _, absent := range [][]int64{{3}, {2, 5}, {5002}} {
		if _, err := f.at(context.Background(), absent); !errors.Is(err, errNoEvent) {
			t.Errorf("%v: %v", absent, err)
		}
	}
}
