package retention

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// letterList is a list of letters, some of which always fail.
type letterList struct {
	casework.LetterJournal
	letters      []journal.LetterRow
	failing      map[background.RunID]bool
	pages, tries int
	done         map[string]int // number of letters by tenant
}

func (s *letterList) add(tenant string, n int, bad bool) {
	for range n {
		var f journal.LetterRow
		f.Run.ID, f.Run.Tenant = background.RunID(casework.NewID()), tenant
		if s.letters = append(s.letters, f); bad {
			s.failing[f.Run.ID] = true
		}
	}
}

// ApplyLetterBatch fails if one of the letters does.
func (s *letterList) ApplyLetterBatch(_ context.Context, changes []journal.Change) ([]bool, error) {
	s.tries++
	if slices.ContainsFunc(changes, func(ch journal.Change) bool { return s.failing[ch.Before.Run.ID] }) {
		return nil, errItem
	}
	for _, ch := range changes {
		s.done[ch.Before.Run.Tenant]++
	}
	return slices.Repeat([]bool{true}, len(changes)), nil
}

// scan iterates over the list as a round does, with a decision that changes nothing.
func (s *letterList) scan() (Report, error) { return s.scanBy(unchanged) }

func (s *letterList) scanBy(decide casework.LetterDecision) (Report, error) {
	s.done = map[string]int{}
	p := pruneRound{Keeper: &Keeper{log: zap.NewNop()}}
	at := 0
	err := p.eachPage(context.Background(), func(after journal.LetterRowCursor) ([]journal.LetterRow, journal.LetterRowCursor, error) {
		page := s.letters[at:min(at+pruneBatch, len(s.letters))]
		if len(page) == 0 {
			return nil, after, nil
		}
		s.pages++
		at += len(page)
		return page, journal.LetterRowCursor{Run: page[len(page)-1].Run.ID}, nil
	}, func(letters []journal.LetterRow, tried func(int, error) bool) ([]casework.Result, error) {
		return (&casework.Applier{Letters: s}).ApplyMany(context.Background(), letters, decide, casework.Batch{Tried: tried})
	})
	return p.report, err
}

// A decision that panics is a failure of its letter. One that a gate refuses is none.
func TestADecisionThatPanicsIsCounted(t *testing.T) {
	t.Parallel()
	s := letterList{failing: map[background.RunID]bool{}}
	s.add("acme", 10, false)
	got, err := s.scanBy(func(f journal.LetterRow) (journal.Change, error) {
		switch f.Run.ID {
		case s.letters[3].Run.ID:
			panic("no such rule")
		case s.letters[7].Run.ID:
			return journal.Change{}, casework.RefusedBy(refusal.GateHeld, f.Snapshot)
		}
		return unchanged(f)
	})
	if err != nil || got.Failed != 1 || s.done["acme"] != 8 {
		t.Errorf("%+v, %v done, %v", got, s.done, err)
	}
}

// Adjacent failing letters at the oldest end block neither other letters of their tenant nor
// those of others.
func TestLettersBesideEachOtherThatFailHinderNoOther(t *testing.T) {
	t.Parallel()
	for _, bad := range []int{1, 9, 20, 100} {
		s := letterList{failing: map[background.RunID]bool{}}
		s.add("acme", bad, true)
		s.add("acme", 700, false)
		s.add("other", 30, false)
		got, err := s.scan()
		if err != nil || s.done["acme"] < 680 || s.done["other"] != 30 || got.Failed != bad+700-s.done["acme"] {
			t.Errorf("%d bad ones: %v done, %+v, %v", bad, s.done, got, err)
		}
		if bad < tenantFailureLimit && s.done["acme"] != 700 {
			t.Errorf("%d bad ones: %v done", bad, s.done)
		}
	}
}

// A tenant whose letters all fail is skipped after a while, and the others are not.
func TestATenantWithWhomNothingWorksHindersNoOther(t *testing.T) {
	t.Parallel()
	s := letterList{failing: map[background.RunID]bool{}}
	s.add("acme", 20*pruneBatch, true)
	for range 10 {
		s.add("acme", 10, true)
		s.add("other", 90, false)
	}
	got, err := s.scan()
	if err != nil || s.done["other"] != 900 || s.done["acme"] != 0 || got.Failed != 20*pruneBatch+100 {
		t.Errorf("%v done, %+v, %v", s.done, got, err)
	}
	if most := skipTenantAfterPages*tenantFailureLimit + 2; s.tries > most {
		t.Errorf("%d tries, %d at most", s.tries, most)
	}
}

// However many tenants always fail, and however many letters they have, the tenants behind them
// are tried, also if one of their own letters fails.
func TestEveryTenantHasItsTurn(t *testing.T) {
	t.Parallel()
	s := letterList{failing: map[background.RunID]bool{}}
	for range 12 {
		s.add(casework.NewID().String(), 3*pruneBatch, true)
	}
	for range 300 {
		s.add(casework.NewID().String(), 1, true)
	}
	s.add("mixed", 1, true)
	s.add("mixed", 99, false)
	s.add("other", 99, false)
	for range degradedAfterFailures {
		s.add(casework.NewID().String(), 1, true)
	}
	s.add("last", 1, false)
	got, err := s.scan()
	if err != nil || s.done["mixed"] != 99 || s.done["other"] != 99 || s.done["last"] != 1 || got.Failed != len(s.letters)-199 {
		t.Errorf("%v done, %+v, %v", s.done, got, err)
	}
}

// When nothing works for any tenant, each tenant is tried, but not each of its letters.
func TestWhenNothingWorksEachTenantIsTriedABit(t *testing.T) {
	t.Parallel()
	s := letterList{failing: map[background.RunID]bool{}}
	const tenants = 60
	for range tenants {
		s.add(casework.NewID().String(), 2*pruneBatch, true)
	}
	got, err := s.scan()
	if most := degradedAfterFailures + tenants*skipTenantAfterPages*degradedFailureLimit; err != nil || got.Failed != len(s.letters) || s.tries > most || s.tries < tenants {
		t.Errorf("%d tries, %d at most; %+v, %v", s.tries, most, got, err)
	}
}

// unchanged is a decision that changes nothing.
func unchanged(f journal.LetterRow) (journal.Change, error) {
	after := f.Snapshot
	return journal.Change{Before: &f.Snapshot, After: &after}, nil
}

var errItem = errors.New("not this letter")
