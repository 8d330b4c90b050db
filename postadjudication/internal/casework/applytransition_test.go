package casework

import (
	"errors"
	"fmt"
	"testing"

	"github.com/recourse-dev/recourse/background"
)

// When too many effects are kept, the oldest are dropped, one at a time.
func TestTheOldestUnansweredEffectsAreDropped(t *testing.T) {
	t.Parallel()
	var u unansweredEffects
	ids := make([]background.TransitionID, maxUnanswered+2)
	for i := range ids {
		ids[i] = NewID()
		if dropped := u.keep(ids[i], effects{excess: int64(i + 1)}); dropped != (i >= maxUnanswered) {
			t.Fatalf("effects were dropped by the %dth: %v", i, dropped)
		}
	}
	for i, id := range ids {
		want := int64(i + 1)
		if i < 2 {
			want = 0
		}
		if got := u.take(id); got.excess != want {
			t.Fatalf("effects %d have the excess %d, want %d", i, got.excess, want)
		}
	}
	if u.keep(NewID(), effects{}) || len(u.of) > 0 {
		t.Errorf("%d are left", len(u.of))
	}
}

// Effects are kept for the next try as long as nobody knows whether the transition was written. A run that can't be
// read at the second try may have it as its last one.
func TestEffectsAreKeptUntilItIsKnownWhetherTheyHappened(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		errors.New("connection reset"):                        true,
		fmt.Errorf("version 9: %w", background.ErrUnreadable): true,
		background.ErrConflict:                                false,
		background.ErrUnrecordable:                            false,
	} {
		if got := mayBeWritten(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	if mayBeWritten(nil) {
		t.Error("a transition with an answer")
	}
}
