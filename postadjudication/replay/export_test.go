package replay

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// What black-box tests need of this package that its users do not.

// ParseDelay parses the delay of a rule.
var ParseDelay = parseDelay

// Store returns the store of the rules.
func (r Rules) Store() *Replayer { return r.s }

func (s *Replayer) Journal() *journal.Journal { return s.journal }
func (s *Replayer) Index() *search.Index      { return s.index.Search }

// Round applies rules beside the processes that do.
func (s *Replayer) Round(ctx context.Context, enabled []journal.Rule) Report {
	return s.runner.round(ctx, enabled)
}

// LimitRounds limits the letters of a page and the pages of a round.
func (s *Replayer) LimitRounds(page, pages int) { s.runner.page, s.runner.pages = page, pages }

// Page is letters as a rule read them, before it changes them.
type Page struct {
	Letters []journal.LetterRow
	s       *Replayer
	action  *action
}

// Read reads letters as a rule does.
func (s *Replayer) Read(ctx context.Context, set StoredRule, runs ...background.RunID) (Page, error) {
	rule, err := newActive(set)
	if err != nil {
		return Page{}, err
	}
	found := make([]search.Letter, len(runs))
	for i, id := range runs {
		found[i] = search.Letter{Run: background.Run{ID: id}}
	}
	letters, lineages, err := s.lettersForRule(ctx, &rule, found)
	if err != nil {
		return Page{}, err
	}
	w, err := s.newAction(ctx, &rule, letters, lineages, s.now())
	return Page{letters, s, w}, err
}

// Apply applies the rule to some letters of the page.
func (p Page) Apply(ctx context.Context, letters []journal.LetterRow) (replayed, marked int, err error) {
	n, err := p.s.applyRuleToDue(ctx, p.action, letters)
	return n.replayed, n.marked, err
}

// ApplyToOne applies the rule to the first letter of the page, alone.
func (p Page) ApplyToOne(ctx context.Context) error {
	return p.s.applier.ApplyAsRead(ctx, p.Letters[0], p.action.decide)
}
