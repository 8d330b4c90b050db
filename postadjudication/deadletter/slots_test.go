package deadletter_test

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// usesOfSlots appends the slots that are in use at each write.
type usesOfSlots struct {
	letters deadletter.Letters
	seen    []int
}

func (w *usesOfSlots) Write(b []byte) (int, error) {
	active, byTenant := w.letters.ConditionsInUse()
	w.seen = append(w.seen, active, byTenant["acme"])
	return len(b), nil
}

// A request with a condition uses one slot while it runs, and none after its end, also after a
// refusal.
func TestEveryRequestWithAConditionReleasesItsSlot(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.DeadLetters(0, 2, rig.Refuses)
	ctx := context.Background()
	o := r.As("acme", "user:ada")
	during := &usesOfSlots{letters: o.DeadLetters.Letters}
	for name, one := range map[string]struct {
		ask     func() error
		refused bool
	}{
		"search": {ask: func() error {
			_, err := o.DeadLetters.Search(ctx, deadletter.Search{Where: "held || can_fork", Limit: 10})
			return err
		}},
		"export": {ask: func() error {
			_, err := o.DeadLetters.Export(ctx, deadletter.Filter{}, "true", deadletter.JSON, during)
			return err
		}},
		"plan": {ask: func() error {
			_, err := o.Bulk.Plan(ctx, bulk.Request{Action: bulk.Hold, Where: "true", Reason: "a court asks"})
			return err
		}},
		"check": {ask: func() error { return o.DeadLetters.CheckCondition(ctx, "held") }},
		"search of a bad condition": {refused: true, ask: func() error {
			_, err := o.DeadLetters.Search(ctx, deadletter.Search{Where: "held ==", Limit: 1})
			return err
		}},
		"search of a bad cursor": {refused: true, ask: func() error {
			_, err := o.DeadLetters.Search(ctx, deadletter.Search{Where: "held", Limit: 1, After: "x"})
			return err
		}},
		"export of a bad format": {refused: true, ask: func() error {
			_, err := o.DeadLetters.Export(ctx, deadletter.Filter{}, "held", "xls", io.Discard)
			return err
		}},
		"plan without a reason": {refused: true, ask: func() error {
			_, err := o.Bulk.Plan(ctx, bulk.Request{Action: bulk.Hold, Where: "held"})
			return err
		}},
		"check of a bad condition": {refused: true, ask: func() error { return o.DeadLetters.CheckCondition(ctx, "held ==") }},
	} {
		var refused *refusal.FieldError
		if err := one.ask(); one.refused != errors.As(err, &refused) || !one.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if active, byTenant := o.DeadLetters.ConditionsInUse(); active != 0 || len(byTenant) != 0 {
			t.Errorf("%s: slots are still in use: %d, %v", name, active, byTenant)
		}
	}
	if len(during.seen) != 2 || during.seen[0] != 1 || during.seen[1] != 1 {
		t.Errorf("slots in use while an export writes: %v", during.seen)
	}
}
