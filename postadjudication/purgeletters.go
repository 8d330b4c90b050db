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

// purgeGate tells why a letter may not be taken, neither by retention nor by a person
// who purges; empty when it may.
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

// purgeLetters takes letters, of any tenants: it archives them if there is an archive, then
// closes them as purged with their receipts, then removes their mirrors. A letter that
// has changed since it was read is left as it is. When the process dies between the
// steps, the letters are still open and are taken, and archived, again; a mirror that
// stays goes with the next look at the mirrors.
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

// purgeTenantFamily takes letters of one tenant and family.
func (s *Service) purgeTenantFamily(ctx context.Context, letters []postgres.LetterRow, at time.Time, receipt func(postgres.LetterRow, string) receipts.Draft) (done []background.Run, err error) {
	name, digest, nothingPurged := "", "", true // that nothing was taken
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
		s.log.Warn("mirrors of purged letters were not removed yet", zap.Int("letters", len(done)), zap.Error(err))
	}
	return done, nil
}

// nothingCommitted reports whether it is certain that no letter was taken: no commit was asked
// for, or it was made and wrote none.
func nothingCommitted(written []bool, err error) bool {
	if err != nil {
		return postgres.NotCommitted(err)
	}
	return !slices.Contains(written, true)
}

// errJournalUnavailable means that the journal takes nothing, whatever letters it is given.
var errJournalUnavailable = errors.New("postadjudication: the journal takes no letters now")

func (s *Service) applyLetterChanges(ctx context.Context, changes []postgres.Change) ([]bool, error) {
	written, err := s.journal.ApplyLetterBatch(ctx, changes)
	if postgres.IsUnavailable(err) {
		err = fmt.Errorf("%w: %w", errJournalUnavailable, err)
	}
	return written, err
}

// purgedChange is the change that closes a letter as purged. Case, escrow and reservation
// stay as they are: what was decided is still to be settled by somebody.
func purgedChange(f postgres.LetterRow, receipt receipts.Draft) postgres.Change {
	transition, after := newID(), f.Snapshot
	after.Run.Letter, after.Run.LastTransition = background.LetterPurged, transition
	return postgres.Change{Transition: transition, Before: &f.Snapshot, After: &after, SideEffect: postgres.Erasure{Run: f.Run.ID}, Drafts: []receipts.Draft{receipt}}
}
