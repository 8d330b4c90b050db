package webhookdelivery

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/receipts"
)

func testMessage(position int64, caseNumber byte) *message {
	return &message{position: position, caseID: receipts.CaseID{15: caseNumber}, id: fmt.Sprint(position)}
}

// A queue is driven at random, and read again from what it said of itself, as after the death of a
// process. Every event is delivered, and of each case none before those ahead of it.
func TestAQueueDeliversEveryEventOfACaseInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var log []*message
		for position := int64(1); position <= int64(rapid.IntRange(1, 40).Draw(t, "events")); position++ {
			log = append(log, testMessage(position, byte(rapid.IntRange(1, 5).Draw(t, "case"))))
		}
		now := time.Unix(1000, 0)
		q := newQueue(0)
		accepted := map[int64]bool{}
		var inFlight []*item
		read := func() bool {
			n := min(int(q.readTo)+rapid.IntRange(1, 5).Draw(t, "page"), len(log))
			page := log[q.readTo:n]
			q.add(int64(n), page...)
			return len(page) > 0
		}
		accept := func(i *item) {
			for _, m := range log[:i.position-1] {
				if m.caseID == i.caseID && !accepted[m.position] {
					t.Fatalf("event %d was sent before %d of its case", i.position, m.position)
				}
			}
			accepted[i.position] = true
			q.delivered(i)
		}
		for step := 0; step < 2000 && len(accepted) < len(log); step++ {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				read()
			case 1, 2:
				if i, _ := q.next(now); i != nil {
					i.sending = true
					inFlight = append(inFlight, i)
				}
			case 3:
				if len(inFlight) > 0 {
					n := rapid.IntRange(0, len(inFlight)-1).Draw(t, "which")
					i := inFlight[n]
					inFlight = slices.Delete(inFlight, n, n+1)
					if rapid.Bool().Draw(t, "accepted") {
						accept(i)
					} else {
						q.failed(i, now, now.Add(time.Second))
					}
				}
			case 4:
				now = now.Add(time.Second)
			case 5: // another process goes on from what this one said
				readTo, pending := q.readTo, q.pending()
				for _, m := range log[:readTo] {
					if !accepted[m.position] && !slices.Contains(pending, m.position) {
						t.Fatalf("event %d is lost", m.position)
					}
				}
				q, inFlight = newQueue(readTo), nil
				for _, position := range pending {
					q.add(0, log[position-1])
				}
			}
			if q.waiting != len(q.pending()) {
				t.Fatalf("%d wait, %v", q.waiting, q.pending())
			}
		}
		for len(accepted) < len(log) { // nothing blocks for good
			now = now.Add(time.Second)
			for _, i := range inFlight {
				q.failed(i, now, now)
			}
			inFlight = nil
			if i, _ := q.next(now); i != nil {
				accept(i)
			} else if !read() {
				t.Fatalf("%d of %d events arrived, and nothing is due", len(accepted), len(log))
			}
		}
		if q.waiting != 0 || q.oldest() != nil || q.readTo != int64(len(log)) {
			t.Fatalf("at the end %d wait, read to %d", q.waiting, q.readTo)
		}
	})
}

func TestAQueueSaysWhenTheNextTryIsDue(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	q := newQueue(0)
	q.add(3, testMessage(1, 1), testMessage(2, 1), testMessage(3, 2))
	first, _ := q.next(now)
	if first == nil || first.position != 1 {
		t.Fatalf("%+v", first)
	}
	first.sending = true
	second, _ := q.next(now)
	if second == nil || second.position != 3 { // 2 is of the case whose event is being sent
		t.Fatalf("%+v", second)
	}
	second.sending = true
	q.failed(first, now, now.Add(2*time.Second))
	q.failed(second, now, now.Add(time.Second))
	if i, due := q.next(now); i != nil || !due.Equal(now.Add(time.Second)) {
		t.Errorf("%+v, %v", i, due)
	}
	q.retryNow()
	if i, _ := q.next(now); i != first || i.failures != 1 || !i.firstFailed.Equal(now) {
		t.Errorf("%+v", i)
	}
	if q.oldest() != first || !slices.Equal(q.pending(), []int64{1, 2, 3}) {
		t.Errorf("%v", q.pending())
	}
}

// An event that failed is due after those that failed less often, although it comes before them.
func TestAnEventThatFailsComesAfterOthers(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	q := newQueue(0)
	q.add(3, testMessage(1, 1), testMessage(2, 2), testMessage(3, 3))
	for range 2 {
		i, _ := q.next(now)
		q.failed(i, now, now)
	}
	var order []int64
	for range 3 {
		i, _ := q.next(now)
		order = append(order, i.position)
		q.failed(i, now, now)
	}
	if !slices.Equal(order, []int64{3, 1, 2}) {
		t.Errorf("%v", order)
	}
}
