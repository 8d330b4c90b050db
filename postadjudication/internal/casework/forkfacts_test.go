package casework

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// A fork is not decided while nobody knows which families are served, as when the clock can't be
// measured. A list shows the letter as it would be if the family is served.
func TestAForkIsNotDecidedOnSessionsThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	unmeasured, reads := errors.New("the clock can't be measured"), 0
	f := &SettlementFamily{Served: &ServedFamilies{Local: map[string]bool{"own": true}, Running: func(context.Context) ([]background.Session, error) {
		reads++
		return nil, unmeasured
	}}}
	letter := func(family string) (l journal.LetterRow) {
		l.Run.ID, l.Run.Family, l.Run.State, l.Run.Letter = background.RunID(NewID()), family, background.DeadLettered, background.LetterOpen
		return l
	}
	own, foreign, now := letter("own"), letter("foreign"), time.Now()
	if _, err := f.ReadForkFacts(context.Background(), now, own, foreign); !errors.Is(err, unmeasured) {
		t.Errorf("the facts of a family of other processes: %v", err)
	}
	if gate := f.ForkGate(foreign.Snapshot, now, ""); gate != "" {
		t.Errorf("the list shows %q", gate)
	}
	reads = 0
	if _, err := f.ReadForkFacts(context.Background(), now, own); err != nil || reads != 0 {
		t.Errorf("the facts of an own family: %v after %d reads", err, reads)
	}
}

// Whether a fork gets a new key is decided on what was read, and on nothing else.
func TestAForkGetsANewKeyOnlyOnFactsThatWereRead(t *testing.T) {
	t.Parallel()
	unreadable, first := errors.New("unreadable"), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f := &SettlementFamily{Executor: fixedEscrow{keyLifetime: time.Minute}, Targets: Targets{escrow.DefaultTarget: nil}, CallTimeLimit: time.Second, CallBound: time.Second, ClockSetBack: never, ClockUnchanged: never}
	var s journal.Snapshot
	s.Case.Kind = journal.KindSettlement
	s.Run = background.Run{ID: background.RunID(NewID()), Target: escrow.DefaultTarget, State: background.DeadLettered, Letter: background.LetterOpen, Class: escrow.NotExecuted, FirstSentAt: first}
	for name, tc := range map[string]struct {
		after time.Duration
		calls map[background.RunID]otherCall
		want  bool
		err   error
	}{
		"the old key is valid":           {time.Second, nil, false, nil},
		"no call of another run":         {time.Hour, map[background.RunID]otherCall{s.Run.ID: {}}, true, nil},
		"a call of another run is out":   {time.Hour, map[background.RunID]otherCall{s.Run.ID: {outstanding: true}}, false, nil},
		"the calls could not be read":    {time.Hour, map[background.RunID]otherCall{s.Run.ID: {err: unreadable}}, true, unreadable},
		"the calls were not read at all": {time.Hour, nil, false, ErrLetterChanged},
	} {
		got, err := ForkFacts{family: f, at: first.Add(tc.after), calls: tc.calls}.newKey(&s)
		if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) || err == nil && got != tc.want {
			t.Errorf("%s: %t, %v, want %t, %v", name, got, err, tc.want, tc.err)
		}
	}
	s.Run.Class = escrow.Unknown
	if got, err := (ForkFacts{family: f, at: first.Add(time.Hour)}).newKey(&s); got || err != nil {
		t.Errorf("of unknown outcome: %t, %v", got, err)
	}
}

// A fork enters no queue whose name a reader can't tell from another one's.
func TestAForkNamesAQueueInItsOnlySpelling(t *testing.T) {
	t.Parallel()
	for queue, refused := range map[string]bool{"payouts": false, "payouts\u200b": true, " payouts": true, "e\u0301": true, "\u00e9": false} {
		err := Forking{Queue: queue}.checkQueue(&background.Run{Family: "job", Remote: true}, Targets{})
		if wrong := (*refusal.FieldError)(nil); errors.As(err, &wrong) != refused {
			t.Errorf("%+q: %v", queue, err)
		}
	}
}
