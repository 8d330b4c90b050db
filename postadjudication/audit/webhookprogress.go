package audit

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/receipts/events"
)

// webhookProgress is how far a webhook is, and what it has passed since a person set its position.
type webhookProgress struct {
	Webhook
	recorded *recordedWebhook
	passed   int64          // the events that it gets, after the position that was set and up to ReadTo
	waitsFor map[int64]bool // positions in Pending of which none of these events was found yet
}

// auditProgress checks that each webhook has delivered every event that it has passed, or waits for it.
// The sender writes position, pending events and the count of deliveries in one statement, so that
// these add up at every moment: what was delivered since the position was set last, and what is
// pending, are the events since. Events up to a position never change, so they may be read later.
func (s *auditor) auditProgress(ctx context.Context, a *Report, at breakSubject, all []*webhookProgress) error {
	if len(all) == 0 {
		return nil
	}
	from, to := all[0].recorded.position.After, int64(0)
	for _, w := range all {
		from, to = min(from, w.recorded.position.After), max(to, w.ReadTo)
		w.waitsFor = map[int64]bool{}
		for _, position := range w.Pending {
			w.waitsFor[position] = true
		}
	}
	for r, err := range s.rows.EventsFrom(ctx, at.tenant, from/stored.PositionsPerReceipt) {
		if err != nil {
			return err
		}
		first := r.Number * stored.PositionsPerReceipt
		if first > to {
			break
		}
		public, err := events.Of(r.Receipt)
		if err != nil {
			a.fail(InvariantFold, at.withReceipt(r.Seq), "what was sent to the webhooks of %s can't be compared with receipt %s: %v", at.tenant, r.ID(), err)
			return nil
		}
		for n, e := range public {
			for _, w := range all {
				w.pass(first+int64(n), string(e.Type))
			}
		}
	}
	for _, w := range all {
		w.check(a, at)
	}
	return nil
}

// pass counts an event.
func (w *webhookProgress) pass(position int64, of string) {
	wanted := len(w.recorded.types) == 0 || slices.Contains(w.recorded.types, of)
	if wanted && position > w.recorded.position.After && position <= w.ReadTo {
		w.passed++
		delete(w.waitsFor, position)
	}
}

// check adds a break for each position that has no event, and one if the count of deliveries is wrong.
func (w *webhookProgress) check(a *Report, at breakSubject) {
	set, name := w.recorded.position, fmt.Sprintf("webhook %s of %s", w.ID, at.tenant)
	for position := range w.waitsFor {
		a.fail(InvariantFold, at, "%s waits for position %d, which has no event that it gets after position %d, where receipt %s set it", name, position, set.After, w.recorded.positionReceipt)
	}
	if want := set.Delivered + w.passed - int64(len(w.Pending)); w.Delivered != want {
		a.failDiffering(InvariantFold, at, strconv.FormatInt(w.Delivered, 10), strconv.FormatInt(want, 10),
			"%s has passed %d events after position %d, where receipt %s set it with %d delivered before, and waits for %d of them: %d must have been delivered, and stored are %d. It may have missed events; replay it from an earlier position",
			name, w.passed, set.After, w.recorded.positionReceipt, set.Delivered, len(w.Pending), want, w.Delivered)
	}
}
