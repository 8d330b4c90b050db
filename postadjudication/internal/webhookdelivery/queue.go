package webhookdelivery

import (
	"slices"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// MaxWaiting bounds the events of a webhook that are read and not delivered.
const MaxWaiting = 200

// queue has the events of one webhook that are read and not delivered. It says which may be sent:
// of each case the first, unless it is being sent or waits for another try. It is pure.
type queue struct {
	readTo  int64 // every event up to it was delivered, is not wanted, or is in the queue
	waiting int
	cases   map[receipts.CaseID][]*item
}

// item is an event in the queue.
type item struct {
	*message
	sending     bool
	failures    int       // tries that failed
	firstFailed time.Time // zero: none did
	notBefore   time.Time // the next try
}

func newQueue(readTo int64) *queue {
	return &queue{readTo: readTo, cases: map[receipts.CaseID][]*item{}}
}

// add appends events, in the order of their positions, and says that every event up to readTo was
// read.
func (q *queue) add(readTo int64, all ...*message) {
	for _, m := range all {
		q.cases[m.caseID] = append(q.cases[m.caseID], &item{message: m})
	}
	q.waiting += len(all)
	q.readTo = max(q.readTo, readTo)
}

// next returns the event to send next: of those that are due, the one with the fewest failures, so that
// an event that is never accepted is not tried in place of others; of several the first in the order of
// positions.
// If there is none it returns when the earliest one is due, zero if none waits for a time.
func (q *queue) next(now time.Time) (*item, time.Time) {
	var found *item
	var due time.Time
	for _, items := range q.cases {
		first := items[0]
		switch {
		case first.sending:
		case first.notBefore.After(now):
			if due.IsZero() || first.notBefore.Before(due) {
				due = first.notBefore
			}
		case found == nil || first.failures < found.failures || first.failures == found.failures && first.position < found.position:
			found = first
		}
	}
	return found, due
}

// delivered removes an event that was sent.
func (q *queue) delivered(i *item) {
	rest := q.cases[i.caseID][1:]
	if q.waiting--; len(rest) == 0 {
		delete(q.cases, i.caseID)
		return
	}
	q.cases[i.caseID] = rest
}

// failed records a try that failed at a time. The next one is due at notBefore.
func (q *queue) failed(i *item, at, notBefore time.Time) {
	i.sending, i.notBefore = false, notBefore
	if i.failures++; i.firstFailed.IsZero() {
		i.firstFailed = at
	}
}

// retryNow makes every event due that waits for another try.
func (q *queue) retryNow() {
	for _, items := range q.cases {
		items[0].notBefore = time.Time{}
	}
}

// oldest returns the event with the lowest position; nil if the queue is empty.
func (q *queue) oldest() *item {
	var found *item
	for _, items := range q.cases {
		if found == nil || items[0].position < found.position {
			found = items[0]
		}
	}
	return found
}

// pending returns the positions of the events, in order.
func (q *queue) pending() []int64 {
	out := make([]int64, 0, q.waiting)
	for _, items := range q.cases {
		for _, i := range items {
			out = append(out, i.position)
		}
	}
	slices.Sort(out)
	return out
}
