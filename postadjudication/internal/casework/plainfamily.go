package casework

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Recorder returns the adapter that records transitions of a family's runs. A process without
// an executor can still record a person's request.
func (c *Applier) Recorder(name string) interface {
	Record(context.Context, background.Transition) (background.Run, error)
} {
	if p, ok := c.PlainFamilies[name]; ok {
		return p
	}
	if name != Family {
		return &PlainFamily{Journal: c.Journal}
	}
	return c.Settlements
}

// PlainFamily records the transitions of a plain family.
type PlainFamily struct {
	FamilyName       string
	Policy           retrypolicy.Policy
	AttemptTimeLimit time.Duration
	Run              func(ctx context.Context, a background.Attempt) background.Result
	LeaseTerms       func(payload []byte) (length, limit time.Duration) // of a family of remote runs: what a payload asks for, 0 where it does not
	Journal          *journal.Journal
	LetterHandlers   *LetterHandlers
}

// Name implements background.Family.
func (f *PlainFamily) Name() string { return f.FamilyName }

// TimeLimit returns the time limit of an attempt; 30 seconds unless configured.
func (f *PlainFamily) TimeLimit() time.Duration {
	if f.AttemptTimeLimit > 0 {
		return f.AttemptTimeLimit
	}
	return 30 * time.Second
}

// Handle runs the function of the family.
func (f *PlainFamily) Handle(ctx context.Context, a background.Attempt) background.Result {
	return f.Run(ctx, a)
}

// Lookup returns an unknown outcome: a plain family has no lookup.
func (f *PlainFamily) Lookup(context.Context, background.Run) background.Result {
	return background.Result{Class: escrow.Unknown, Failure: &background.Failure{Type: "lookup.unsupported", Message: "a plain family has no lookup"}}
}

// Record commits a transition with its receipt.
func (f *PlainFamily) Record(ctx context.Context, tr background.Transition) (background.Run, error) {
	if err := redactTransition(ctx, nil, &tr); err != nil {
		return background.Run{}, err
	}
	if tr.Subtype == receipts.OutOfBandChangeDetected {
		return recordTampering(ctx, f.Journal, &tr)
	}
	s, _, err := f.LetterHandlers.applyWithLetterHandler(ctx, f.Journal, &tr, func(s *journal.Snapshot) (journal.Change, error) { return f.changeOf(&tr, s) })
	return s.Run, err
}

// changeOf returns the change that a transition makes to a run.
func (f *PlainFamily) changeOf(tr *background.Transition, s *journal.Snapshot) (journal.Change, error) {
	if tr.Subtype == receipts.AttemptStarted && s.Run.State.Waiting() {
		if err := checkBinding(&s.Run); err != nil {
			return journal.Change{}, err
		}
	}
	after := *s
	if err := tr.Apply(&after.Run); err != nil {
		return journal.Change{}, unrecordableUnlessKnown(err)
	}
	drafts := []receipts.Draft{{Run: s.Run.ID, Subtype: tr.Subtype, Actor: actorOf(tr), At: tr.At}}
	fillPayload(&drafts[0].Payload, tr, &s.Run, &after.Run)
	return journal.Change{Transition: tr.ID, Before: s, After: &after, Drafts: drafts}, nil
}
