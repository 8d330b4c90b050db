package eventlog

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// However long a step took, the next one comes before the server ends the idle session.
func TestThePauseOfTheSequencerKeepsItsSession(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: sequencePauseMin, 10 * time.Millisecond: 40 * time.Millisecond, 500 * time.Millisecond: 2 * time.Second,
		1250 * time.Millisecond: sequenceCostMax, 15 * time.Second: sequenceCostMax,
	} {
		if got := pauseAfter(took); got != want || got+sequencePauseMax >= journal.SequencerIdle {
			t.Errorf("after a step of %s: %s, want %s", took, got, want)
		}
	}
}
