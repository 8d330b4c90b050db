package casework

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// PurgeGate returns the gate that forbids both retention and people to purge a letter; empty if
// it may be purged.
func PurgeGate(f journal.LetterRow) refusal.Gate {
	switch {
	case f.Run.State != background.DeadLettered:
		return refusal.GateNotALetter
	case f.Run.Letter != background.LetterOpen:
		return refusal.GateNotOpen
	case moneyUnknown(f.Snapshot):
		return refusal.GateReconcileFirst
	case f.Annotations.Held:
		return refusal.GateHeld
	}
	return ""
}

// Purging closes a letter as purged. Case, escrow and reservation stay unchanged: the decision is
// still to be settled by a person.
func Purging(receipt func(journal.LetterRow) receipts.Draft) LetterDecision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := PurgeGate(f); gate != "" {
			return journal.Change{}, RefusedBy(gate, f.Snapshot)
		}
		after := f.Snapshot
		after.Run.Letter = background.LetterPurged
		return journal.Change{Before: &f.Snapshot, After: &after, SideEffect: journal.Erasure{Run: f.Run.ID}, Drafts: []receipts.Draft{receipt(f)}}, nil
	}
}

// Archiver archives letters before they are purged.
type Archiver interface {
	// Put writes letters of one tenant and family to one file and returns its name and the SHA-256
	// of its content, in hex. The file is on stable storage when it returns. After an error, if the
	// name is not empty, a file of that name may exist. The error is ErrNotArchived if the archive
	// took no file.
	Put(ctx context.Context, letters []journal.LetterRow, at time.Time) (name, digest string, err error)
	// Remove removes a file. It is called only if it is certain that no letter in the file was purged.
	Remove(ctx context.Context, name string)
}

// ErrNotArchived means that the archive took no file.
var ErrNotArchived = errors.New("postadjudication: the archive does not take the letters")

// Archiving returns m extended for a purge. Letters of one tenant and family share a commit and, if
// there is an archive, a file of it, which is written before the commit. After the commit their
// archived tasks are removed from Redis. If the process dies between the steps, letters that are still
// open are archived again and purged by a later call, and the sweep of archived tasks removes the
// tasks that remained.
func (c *Applier) Archiving(at time.Time, m Batch) Batch {
	m.group = func(f journal.LetterRow) string { return f.Run.Tenant + "\x00" + f.Run.Family }
	m.Around = func(ctx context.Context, letters []journal.LetterRow, changes []journal.Change, write func() ([]bool, error)) ([]bool, error) {
		name := ""
		if c.Archive != nil && !m.Unarchived {
			var digest string
			var err error
			if name, digest, err = c.Archive.Put(ctx, letters, at); err != nil {
				c.removeFile(context.WithoutCancel(ctx), name)
				return nil, err
			}
			for i := range changes {
				p := &changes[i].Drafts[0].Payload
				p.Archive, p.ArchiveDigest = name, digest
			}
		}
		written, err := write()
		ctx = context.WithoutCancel(ctx)
		if nothingCommitted(written, err) {
			c.removeFile(ctx, name)
		}
		if err == nil {
			c.removeArchivedTasks(ctx, changes, written)
		}
		return written, err
	}
	return m
}

// removeFile removes a file of the archive, if there is one.
func (c *Applier) removeFile(ctx context.Context, name string) {
	if name != "" {
		c.Archive.Remove(ctx, name)
	}
}

// removeArchivedTasks removes the archived tasks of the letters that were purged.
func (c *Applier) removeArchivedTasks(ctx context.Context, changes []journal.Change, written []bool) {
	var purged []background.Run
	for i, ok := range written {
		if ok {
			purged = append(purged, changes[i].After.Run)
		}
	}
	if err := c.Engine.RemoveArchivedTasks(ctx, purged); err != nil {
		c.Log.Warn("archived tasks of purged letters were not removed yet", zap.Int("letters", len(purged)), zap.Error(err))
	}
}

// nothingCommitted reports whether it is certain that no letter was purged: the commit was not
// attempted, or it succeeded without changing a letter.
func nothingCommitted(written []bool, err error) bool {
	if err != nil {
		return journal.NotCommitted(err)
	}
	return !slices.Contains(written, true)
}
