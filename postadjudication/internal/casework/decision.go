package casework

import (
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// LetterDecision returns the change to make to a dead letter as it was read, or the error that
// refuses it. The head of its case is the version of letter and annotations. A decision is
// called again whenever the letter is read again, so it must be pure: what it needs besides the
// letter is read before, such as ForkFacts. It leaves the ids of the transition empty: whoever
// applies it sets them. decisions.md says why findings are none of these.
type LetterDecision func(f journal.LetterRow) (journal.Change, error)

// Guard narrows decisions to a letter as it was planned, and completes their receipts. The zero
// guard does neither.
type Guard struct {
	Head  *receipts.Head          // nil: any; else ErrLetterChanged unless the head of the case is this one
	Stamp func(*receipts.Payload) // nil: nothing; else called with the payload of each receipt of a change
}

// Letter guards decisions about letters.
func (g Guard) Letter(decide LetterDecision) LetterDecision {
	return func(f journal.LetterRow) (journal.Change, error) {
		return g.wrap(func(*journal.Snapshot) (journal.Change, error) { return decide(f) })(&f.Snapshot)
	}
}

// wrap guards decisions about runs.
func (g Guard) wrap(decide journal.Decision) journal.Decision {
	if g.Head == nil && g.Stamp == nil {
		return decide
	}
	return func(s *journal.Snapshot) (journal.Change, error) {
		if g.Head != nil && s.Case.Head != *g.Head {
			return journal.Change{}, ErrLetterChanged
		}
		ch, err := decide(s)
		for i := range ch.Drafts {
			if g.Stamp != nil {
				g.Stamp(&ch.Drafts[i].Payload)
			}
		}
		return ch, err
	}
}
