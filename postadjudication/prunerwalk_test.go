package postadjudication

import (
	"context"
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// letterList is a list of letters, some of which nothing can be done with.
type letterList struct {
	letters      []postgres.LetterRow
	failing      map[background.RunID]bool
	pages, tries int
	done         map[string]int // letters by tenant
}

func (s *letterList) add(tenant string, n int, bad bool) {
	for range n {
		var f postgres.LetterRow
		f.Run.ID, f.Run.Tenant = background.RunID(newID()), tenant
		if s.letters = append(s.letters, f); bad {
			s.failing[f.Run.ID] = true
		}
	}
}

// scan walks the list as a round does.
func (s *letterList) scan() (PruneReport, error) {
	s.done = map[string]int{}
	p := pruneRound{Service: &Service{log: zap.NewNop()}}
	at := 0
	err := p.eachPage(context.Background(), func(after postgres.LetterRowPosition) ([]postgres.LetterRow, postgres.LetterRowPosition, error) {
		page := s.letters[at:min(at+pruneBatch, len(s.letters))]
		if len(page) == 0 {
			return nil, after, nil
		}
		s.pages++
		at += len(page)
		return page, postgres.LetterRowPosition{Run: page[len(page)-1].Run.ID}, nil
	}, func(letters []postgres.LetterRow) error {
		s.tries++
		if slices.ContainsFunc(letters, func(f postgres.LetterRow) bool { return s.failing[f.Run.ID] }) {
			return errRejected
		}
		for _, f := range letters {
			s.done[f.Run.Tenant]++
		}
		return nil
	})
	return p.report, err
}

// Letters beside each other at the oldest end, of which nothing can be done, keep
// neither the other letters of their tenant nor those of others.
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

// A tenant with whom nothing works is passed by after a while, and the others are not.
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

// However many tenants there are with whom nothing works, and however many letters they
// have, those behind them have their turn, also when one of their own letters fails.
func TestEveryTenantHasItsTurn(t *testing.T) {
	t.Parallel()
	s := letterList{failing: map[background.RunID]bool{}}
	for range 12 {
		s.add(newID().String(), 3*pruneBatch, true)
	}
	for range 300 {
		s.add(newID().String(), 1, true)
	}
	s.add("mixed", 1, true)
	s.add("mixed", 99, false)
	s.add("other", 99, false)
	for range degradedAfterFailures {
		s.add(newID().String(), 1, true)
	}
	s.add("last", 1, false)
	got, err := s.scan()
	if err != nil || s.done["mixed"] != 99 || s.done["other"] != 99 || s.done["last"] != 1 || got.Failed != len(s.letters)-199 {
		t.Errorf("%v done, %+v, %v", s.done, got, err)
	}
}

// When nothing works with anybody, each tenant is tried, but not each of its letters.
func TestWhenNothingWorksEachTenantIsTriedABit(t *testing.T) {
	t.Parallel()
	s := letterList{failing: map[background.RunID]bool{}}
	const tenants = 60
	for range tenants {
		s.add(newID().String(), 2*pruneBatch, true)
	}
	got, err := s.scan()
	if most := degradedAfterFailures + tenants*skipTenantAfterPages*degradedFailureLimit; err != nil || got.Failed != len(s.letters) || s.tries > most || s.tries < tenants {
		t.Errorf("%d tries, %d at most; %+v, %v", s.tries, most, got, err)
	}
}
