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

// keeps tells why a letter may not be taken, neither by retention nor by a person
// who purges; empty when it may.
func keeps(f postgres.Filed) Gate {
	switch {
	case f.Run.State != background.DeadLettered:
		return GateNotALetter
	case f.Run.Letter != background.LetterOpen:
		return GateNotOpen
	case moneyUnknown(f.Snapshot):
		return GateReconcileFirst
	case f.Desk.Held:
		return GateHeld
	}
	return ""
}

// retire takes letters, of any tenants: it archives them if there is an archive, then
// closes them as purged with their receipts, then removes their mirrors. A letter that
// has changed since it was read is left as it is. When the process dies between the
// steps, the letters are still open and are taken, and archived, again; a mirror that
// stays goes with the next look at the mirrors.
func (s *Service) retire(ctx context.Context, letters []postgres.Filed, at time.Time, receipt func(f postgres.Filed, archive string) receipts.Draft) (done []background.Run, err error) {
	letters = slices.Clone(letters)
	slices.SortStableFunc(letters, func(a, b postgres.Filed) int {
		return cmp.Or(cmp.Compare(a.Run.Tenant, b.Run.Tenant), cmp.Compare(a.Run.Family, b.Run.Family))
	})
	for len(letters) > 0 {
		n := 1
		for n < len(letters) && letters[n].Run.Tenant == letters[0].Run.Tenant && letters[n].Run.Family == letters[0].Run.Family {
			n++
		}
		some, err := s.retireOf(ctx, letters[:n], at, receipt)
		if err != nil {
			return done, err
		}
		done, letters = append(done, some...), letters[n:]
	}
	return done, nil
}

// retireOf takes letters of one tenant and family.
func (s *Service) retireOf(ctx context.Context, letters []postgres.Filed, at time.Time, receipt func(postgres.Filed, string) receipts.Draft) (done []background.Run, err error) {
	name, digest, certain := "", "", true // that nothing was taken
	if s.archive != nil {
		defer func() {
			if certain && name != "" {
				s.unarchive(ctx, name)
			}
		}()
		if name, digest, err = s.archived(ctx, letters, at); err != nil {
			return nil, err
		}
	}
	changes := make([]postgres.Change, len(letters))
	for i, f := range letters {
		draft := receipt(f, name)
		draft.Payload.ArchiveDigest = digest
		changes[i] = retired(f, draft)
	}
	certain = false
	written, err := s.moveFiled(ctx, changes)
	certain = tookNothing(written, err)
	if err != nil {
		return nil, err
	}
	for i, ok := range written {
		if ok {
			done = append(done, changes[i].After.Run)
		}
	}
	if err := s.manager.Unmirror(ctx, done); err != nil {
		s.log.Warn("mirrors of purged letters were not removed yet", zap.Int("letters", len(done)), zap.Error(err))
	}
	return done, nil
}

// tookNothing reports whether it is certain that no letter was taken: no commit was asked
// for, or it was made and wrote none.
func tookNothing(written []bool, err error) bool {
	if err != nil {
		return postgres.Uncommitted(err)
	}
	return !slices.Contains(written, true)
}

// errJournalTrouble means that the journal takes nothing, whatever letters it is given.
var errJournalTrouble = errors.New("postadjudication: the journal takes no letters now")

func (s *Service) moveFiled(ctx context.Context, changes []postgres.Change) ([]bool, error) {
	written, err := s.journal.MoveFiled(ctx, changes)
	if postgres.Trouble(err) {
		err = fmt.Errorf("%w: %w", errJournalTrouble, err)
	}
	return written, err
}

// retired is the change that closes a letter as purged. Case, escrow and reservation
// stay as they are: what was decided is still to be settled by somebody.
func retired(f postgres.Filed, receipt receipts.Draft) postgres.Change {
	move, after := newID(), f.Snapshot
	after.Run.Letter, after.Run.LastMove = background.LetterPurged, move
	return postgres.Change{Move: move, Before: &f.Snapshot, After: &after, Beside: postgres.Cleared{Run: f.Run.ID}, Drafts: []receipts.Draft{receipt}}
}
