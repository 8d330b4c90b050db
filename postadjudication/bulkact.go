package postadjudication

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// do does what the plan says with one letter, in the name of who started it, by the
// same decisions and gates as the method of the action.
func (w *bulkWork) do(ctx context.Context, i *postgres.BulkItem) (err error) {
	as := w.as(i)
	actor, reason, tenant := w.plan.StartedBy, w.plan.Reason, w.plan.Tenant
	if all := w.together(); all != nil {
		if err = all(ctx, []*postgres.BulkItem{i}); err == nil && i.Outcome == "" {
			err = errLeft
		}
		return err
	}
	switch BulkAction(w.plan.Action) {
	case BulkReconcile:
		_, err = w.reconcileByLookup(ctx, tenant, i.Run, actor, as)
	case BulkMark:
		_, err = w.desked(ctx, tenant, i.Run, as.file(MarkRequest{actor, reason, w.asked.Reprocess, w.asked.Review}.mark(w.now())))
	case BulkHold:
		_, err = w.desked(ctx, tenant, i.Run, as.file(HoldRequest{actor, reason}.place(w.now())))
	case BulkRelease:
		_, err = w.desked(ctx, tenant, i.Run, as.file(HoldRequest{actor, reason}.release(w.now())))
	case BulkFinding:
		err = w.find(ctx, i, as)
	case BulkFree:
		err = w.free(ctx, i, as)
	default:
		err = &FieldError{Field: "action", Problem: "is not known to this program: " + w.plan.Action}
	}
	return err
}

// forkOf is the id of the run that a plan forks from a letter: always the same, so
// that even a second fork of it could not be written. It is a UUIDv7 of the time when
// the plan was started.
func forkOf(b postgres.Bulk, letter background.RunID) background.RunID {
	sum := sha256.Sum256(append(append([]byte("recourse/fork/1"), b.ID[:]...), letter[:]...))
	var time [8]byte
	binary.BigEndian.PutUint64(time[:], uint64(b.StartedAt.UnixMilli()))
	id := uuid.UUID(sum[:16])
	copy(id[:6], time[2:])
	id[6], id[8] = 0x70|id[6]&0x0f, 0x80|id[8]&0x3f
	return background.RunID(id)
}
