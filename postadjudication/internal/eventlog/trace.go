package eventlog

import (
	"context"
	"slices"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts/events"
)

// GapEvent is the type of the event that tells a reader of a gap. No receipt has it.
const GapEvent events.Type = "events.gap"

// Gap is what a reader is told when the database has lost the end of the order that it read: after a failover to a
// standby that lagged, or a restore. From the position From on, other events are in the places of those that it read
// up to To. They follow the gap, perhaps after some that it has read before.
type Gap struct {
	From Position `json:"from"`
	To   Position `json:"to"`
}

// maxMarks bounds the marks of a Trace. The older ones are farther apart.
const maxMarks = 64

// Trace remembers receipts that a reader has read of an order, so that it notices when others are in their places.
type Trace struct {
	Tenant string // whose order; empty: that of all tenants
	marks  []journal.Mark
	begun  bool
}

// Check reports whether the order is no longer the one that was read, and then the last number of which it still is.
// The first call remembers what is at the number and before; it reports nothing.
func (t *Trace) Check(ctx context.Context, r *journal.Receipts, number int64) (last int64, lost bool, err error) {
	if !t.begun {
		t.marks, err = r.Marks(ctx, t.Tenant, numbersUpTo(number))
		t.begun = err == nil
		return 0, false, err
	}
	if len(t.marks) == 0 {
		return 0, false, nil
	}
	newest := t.marks[len(t.marks)-1]
	found, err := r.Marks(ctx, t.Tenant, []int64{newest.Number})
	if err != nil || len(found) == 1 && found[0] == newest {
		return 0, false, err
	}
	numbers := make([]int64, len(t.marks))
	for i, m := range t.marks {
		numbers[i] = m.Number
	}
	if found, err = r.Marks(ctx, t.Tenant, numbers); err != nil {
		return 0, false, err
	}
	kept := 0
	for kept < len(t.marks) && slices.Contains(found, t.marks[kept]) {
		kept++
	}
	if t.marks = t.marks[:kept]; kept > 0 {
		last = t.marks[kept-1].Number
	}
	return last, true, nil
}

// numbersUpTo returns a number and smaller ones, ascending, each twice as far from it as the one after.
func numbersUpTo(number int64) (out []int64) {
	for back := int64(0); back < number; back = max(1, 2*back) {
		out = append(out, number-back)
	}
	slices.Reverse(out)
	return out
}

// Add remembers a receipt that was read.
func (t *Trace) Add(m journal.Mark) {
	if n := len(t.marks); m.Number == 0 || n > 0 && m.Number <= t.marks[n-1].Number {
		return
	}
	if len(t.marks) == maxMarks {
		i := -1
		t.marks = slices.DeleteFunc(t.marks, func(journal.Mark) bool { i++; return i%2 == 1 && i < maxMarks/2 })
	}
	t.marks = append(t.marks, m)
}

// Reader follows the events of a tenant from a position on. Log.Follow makes one, for one goroutine.
type Reader struct {
	log   *Log
	after Position
	trace Trace
}

// Follow returns a reader of a tenant's events after a position.
func (l *Log) Follow(tenant string, after Position) *Reader {
	return &Reader{log: l, after: after, trace: Trace{Tenant: tenant}}
}

// Next waits until there is at least one event after those that it returned before, and returns at most limit, with
// the position that was reached. When ctx is done it returns no events and no error. If the database has lost the end of
// the order that was read, Next returns an event of the type GapEvent, with the bounds, and goes on with what is in
// the order now. It makes each read in throttle, and waits outside of it. throttle calls read, or returns why it
// did not. Errors are those of Events.
func (r *Reader) Next(ctx context.Context, limit int, throttle func(ctx context.Context, tenant string, read func()) error) (found []Event, reached Position, err error) {
	err = r.log.poll(ctx, r.trace.Tenant, func() (bool, error) {
		var failed error
		if refused := throttle(ctx, r.trace.Tenant, func() { found, failed = r.read(ctx, limit) }); refused != nil {
			return false, refused
		}
		return len(found) > 0, failed
	})
	return found, r.after, err
}

// read reads what is there. What it read counts only if the order was the same after it.
func (r *Reader) read(ctx context.Context, limit int) ([]Event, error) {
	if err := checkEventPage(r.after, limit); err != nil || r.trace.Tenant == "" {
		return nil, err
	}
	if !r.trace.begun {
		if err := r.log.checkPosition(ctx, r.trace.Tenant, r.after); err != nil {
			return nil, err
		}
		if _, _, err := r.trace.Check(ctx, r.log.journal.Receipts, int64(r.after)/PositionsPerReceipt); err != nil {
			return nil, err
		}
	}
	found, next, mark, err := r.log.read(ctx, r.trace.Tenant, r.after, limit)
	if err != nil {
		return nil, err
	}
	switch last, lost, err := r.trace.Check(ctx, r.log.journal.Receipts, 0); {
	case err != nil:
		return nil, err
	case lost:
		gap := Gap{To: r.after}
		if last > 0 {
			gap.From = Position(last*PositionsPerReceipt + PositionsPerReceipt - 1)
		}
		r.after = gap.From
		return []Event{{Position: gap.From, Event: events.Event{Type: GapEvent, Tenant: r.trace.Tenant}, Gap: &gap}}, nil
	}
	r.after = next
	r.trace.Add(mark)
	return found, nil
}
