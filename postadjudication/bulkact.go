package postadjudication

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// applyItem does what the plan says with one letter, in the name of who started it, by the
// same decisions and gates as the method of the action.
func (w *planWork) applyItem(ctx context.Context, i *postgres.BulkItem) (err error) {
	guard := w.guardFor(i)
	actor, reason, tenant := w.plan.StartedBy, w.plan.Reason, w.plan.Tenant
	if apply := w.batchAction(); apply != nil {
		if err = apply(ctx, []*postgres.BulkItem{i}); err == nil && i.Outcome == "" {
			err = errContended
		}
		return err
	}
	switch BulkAction(w.plan.Action) {
	case BulkReconcile:
		_, err = w.reconcileByLookup(ctx, tenant, i.Run, actor, guard)
	case BulkMark:
		_, err = w.annotate(ctx, tenant, i.Run, guard.guardAnnotation(MarkRequest{actor, reason, w.spec.Reprocess, w.spec.Review}.setMarks(w.now())))
	case BulkHold:
		_, err = w.annotate(ctx, tenant, i.Run, guard.guardAnnotation(HoldRequest{actor, reason}.placeHold(w.now())))
	case BulkRelease:
		_, err = w.annotate(ctx, tenant, i.Run, guard.guardAnnotation(HoldRequest{actor, reason}.releaseHold(w.now())))
	case BulkFinding:
		err = w.recordFinding(ctx, i, guard)
	case BulkFree:
		err = w.freeReservation(ctx, i, guard)
	default:
		err = &FieldError{Field: "action", Problem: "is not known to this program: " + w.plan.Action}
	}
	return err
}

// forkID is the id of the run that a plan forks from a letter: always the same, so
// that even a second fork of it could not be written. It is a UUIDv7 of the time when
// the plan was started.
func forkID(b postgres.BulkPlan, letter background.RunID) background.RunID {
	sum := sha256.Sum256(append(append([]byte("recourse/fork/1"), b.ID[:]...), letter[:]...))
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(b.StartedAt.UnixMilli()))
	id := uuid.UUID(sum[:16])
	copy(id[:6], millis[2:])
	id[6], id[8] = 0x70|id[6]&0x0f, 0x80|id[8]&0x3f
	return background.RunID(id)
}
