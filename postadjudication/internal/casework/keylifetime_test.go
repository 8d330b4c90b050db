package casework

import (
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// A clock slightly before the first call waits for it. A clock far before it can't decide, and
// one past the lifetime can.
func TestAClockBeforeTheFirstCallWaits(t *testing.T) {
	t.Parallel()
	f := &SettlementFamily{Executor: fixedEscrow{keyLifetime: time.Minute}, Targets: Targets{escrow.DefaultTarget: nil}, CallTimeLimit: time.Second, CallBound: 3 * time.Second}
	first := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := background.Run{Target: escrow.DefaultTarget, State: background.Scheduled, UnknownOpen: 1, FirstSentAt: first}
	for after, want := range map[time.Duration]error{
		-time.Hour: background.ErrKeyExpired, -2*time.Second - 1: background.ErrKeyExpired,
		-2 * time.Second: background.ErrBeforeFirstCall, -1: background.ErrBeforeFirstCall,
		0: nil, 54*time.Second - 1: nil, 54 * time.Second: background.ErrKeyExpired, time.Hour: background.ErrKeyExpired,
	} {
		if got := f.checkKeyLifetime(&r, first.Add(after)); !errors.Is(got, want) {
			t.Errorf("%s after the first call: %v, want %v", after, got, want)
		}
	}
	if r.UnknownOpen = 0; f.checkKeyLifetime(&r, first.Add(time.Hour)) != nil {
		t.Error("a key without an unknown outcome has expired")
	}
}
