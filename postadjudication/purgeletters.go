package postadjudication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// purgeGate returns the gate that forbids both retention and people to purge a letter; empty if
// it may be purged.
func purgeGate(f postgres.LetterRow) Gate {
	switch {
	case f.Run.State != background.DeadLettered:
		return GateNotALetter
	case f.Run.Letter != background.LetterOpen:
		return GateNotOpen
	case moneyUnknown(f.Snapshot):
		return GateReconcileFirst
	case f.Annotations.Held:
		return GateHeld
	}
	return ""
}

// purgeLetters purges letters of any tenants: it archives them if there is an archive, then
// closes them as purged with their receipts in one commit, then removes their archived tasks. A
// letter that changed since it was read is skipped. If the process dies between the steps, open
// letters are archived again and purged by a later call, and the sweep of archived tasks removes
// those that remained.
func (s *Service) purgeLetters(ctx context.Context, letters []postgres.LetterRow, at time.Time, receipt func(f postgres.LetterRow, archive string) receipts.Draft) (done []background.Run, err error) {
	letters = slices.Clone(letters)
	slices.SortStableFunc(letters, func(a, b postgres.LetterRow) int {
		return cmp.Or(cmp.Compare(a.Run.Tenant, b.Run.Tenant), cmp.Compare(a.Run.Family, b.Run.Family))
	})
	for len(letters) > 0 {
		n := 1
		for n < len(letters) && letters[n].Run.Tenant == letters[0].Run.Tenant && letters[n].Run.Family == letters[0].Run.Family {
			n++
		}
		purged, err := s.purgeTenantFamily(ctx, letters[:n], at, receipt)
		if err != nil {
			return done, err
		}
		done, letters = append(done, purged...), letters[n:]
	}
	return done, nil
}

// purgeTenantFamily purges letters of one tenant and family.
func (s *Service) purgeTenantFamily(ctx context.Context, letters []postgres.LetterRow, at time.Time, receipt func(postgres.LetterRow, string) receipts.Draft) (done []background.Run, err error) {
	name, digest, nothingPurged := "", "", true
	if s.archive != nil {
		defer func() {
			if nothingPurged && name != "" {
				s.removeArchiveFile(ctx, name)
			}
		}()
		if name, digest, err = s.writeArchive(ctx, letters, at); err != nil {
			return nil, err
		}
	}
	changes := make([]postgres.Change, len(letters))
	for i, f := range letters {
		draft := receipt(f, name)
		draft.Payload.ArchiveDigest = digest
		changes[i] = purgedChange(f, draft)
	}
	nothingPurged = false
	written, err := s.applyLetterChanges(ctx, changes)
	nothingPurged = nothingCommitted(written, err)
	if err != nil {
		return nil, err
	}
	for i, ok := range written {
		if ok {
			done = append(done, changes[i].After.Run)
		}
	}
	if err := s.manager.RemoveArchivedTasks(ctx, done); err != nil {
		s.log.Warn("archived tasks of purged letters were not removed yet", zap.Int("letters", len(done)), zap.Error(err))
	}
	return done, nil
}

// nothingCommitted reports whether it is certain that no letter was purged: the commit was not
// attempted, or it succeeded without changing a letter.
func nothingCommitted(written []bool, err error) bool {
	if err != nil {
		return postgres.NotCommitted(err)
	}
	return !slices.Contains(written, true)
}

// errJournalUnavailable means that the journal accepts no write, whatever the letters.
var errJournalUnavailable = errors.New("postadjudication: the journal is unavailable")

func (s *Service) applyLetterChanges(ctx context.Context, changes []postgres.Change) ([]bool, error) {
	written, err := s.journal.ApplyLetterBatch(ctx, changes)
	if postgres.IsUnavailable(err) {
		err = fmt.Errorf("%w: %w", errJournalUnavailable, err)
	}
	return written, err
}

// purgedChange returns the change that closes a letter as purged. Case, escrow and reservation
// stay unchanged: the decision is still to be settled by a person.
func purgedChange(f postgres.LetterRow, receipt receipts.Draft) postgres.Change {
	transition, after := newID(), f.Snapshot
	after.Run.Letter, after.Run.LastTransition = background.LetterPurged, transition
	return postgres.Change{Transition: transition, Before: &f.Snapshot, After: &after, SideEffect: postgres.Erasure{Run: f.Run.ID}, Drafts: []receipts.Draft{receipt}}
}
