package postadjudication

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// do does what the plan says with one letter, in the name of who started it, by the
// same decisions and gates as the method of the action.
func (w *bulkWork) do(ctx context.Context, i *postgres.BulkItem) (made background.RunID, err error) {
	as := &asPlanned{w.plan.ID, i.Head}
	actor, reason, tenant := w.plan.StartedBy, w.plan.Reason, w.plan.Tenant
	switch BulkAction(w.plan.Action) {
	case BulkFork:
		return w.fork(ctx, i, as)
	case BulkReconcile:
		_, err = w.reconcileByLookup(ctx, tenant, i.Run, actor, as)
	case BulkMark:
		_, err = w.desked(ctx, tenant, i.Run, as.file(MarkRequest{actor, reason, w.asked.Reprocess, w.asked.Review}.mark(w.now())))
	case BulkHold:
		_, err = w.desked(ctx, tenant, i.Run, as.file(HoldRequest{actor, reason}.place(w.now())))
	case BulkRelease:
		_, err = w.desked(ctx, tenant, i.Run, as.file(HoldRequest{actor, reason}.release(w.now())))
	default:
		err = &FieldError{Field: "action", Problem: "is not known to this program: " + w.plan.Action}
	}
	return made, err
}

// fork forks a letter as Fork does. The new run's id follows from plan and letter.
func (w *bulkWork) fork(ctx context.Context, i *postgres.BulkItem, as *asPlanned) (background.RunID, error) {
	f := fork{
		ForkRequest: ForkRequest{Actor: w.plan.StartedBy, Reason: w.plan.Reason, Queue: w.asked.Queue},
		run:         forkOf(w.plan, i.Run), move: newID(), at: w.now(), family: w.settlements,
	}
	if w.asked.Policy != "" {
		p, err := retrypolicy.Parse(w.asked.Policy)
		if err != nil {
			return background.RunID{}, &FieldError{Field: "policy", Problem: err.Error()}
		}
		f.Policy = &p
	}
	var begun *background.Run
	_, err := w.journal.Apply(ctx, i.Run, f.move, as.bind(func(s postgres.Snapshot) (postgres.Change, error) {
		if err := w.ownQueue(s.Run.Family, f.Queue); err != nil {
			return postgres.Change{}, err
		}
		ch, err := f.decide(s)
		begun = ch.New
		return ch, err
	}))
	if err != nil {
		return background.RunID{}, err
	}
	if begun != nil {
		w.ring(ctx, Submitted{Reply: Created, Run: f.run, run: *begun, bell: w.manager.Bell})
	}
	return f.run, nil
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
