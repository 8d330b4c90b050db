package postadjudication

import (
	"context"
	"fmt"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
)

func (r *rig) notices() int {
	r.t.Helper()
	return r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'out-of-band-change-detected'`)
}

// untilNoticed waits for the receipt that names what was done to a run's task.
func (r *rig) untilNoticed(run background.RunID, what string) {
	r.t.Helper()
	r.until("a receipt tells of "+what, `SELECT EXISTS (SELECT FROM recourse.receipts WHERE run_id = $1 AND source = 'operations'
		AND subtype = 'out-of-band-change-detected' AND body::json -> 'payload' ->> 'reason_code' = $2)`, run.String(), what)
}

// mirrored brings a run to its death and its mirror, whichever of its bells that is of.
func (r *rig) mirrored(d desk, n int) (s Submitted, mirror string) {
	r.t.Helper()
	s = r.mustSubmit(release(n))
	r.atRest()
	r.untilArchived(d, 1, onlyQueue)
	// A second bell would bring a mirror of its own.
	r.untilTrue("asynq holds nothing but the archive", func() bool {
		info, err := d.GetQueueInfo(onlyQueue)
		return err == nil && info.Pending+info.Active+info.Scheduled+info.Retry == 0
	})
	r.untilLooked()
	archived, err := d.ListArchivedTasks(onlyQueue)
	if err != nil || len(archived) != 1 {
		r.t.Fatalf("%d mirrors, %v", len(archived), err)
	}
	return s, archived[0].ID
}

func refusing(r *rig) {
	r.escrow.script = func(context.Context, Call) Answer { return refused() }
}

func TestArchivingTheTaskOfALiveRunIsNoticedAndChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	d := r.desk()
	s := r.mustRing(r.mustSubmit(release(1))) // nobody works yet
	if err := d.ArchiveTask(onlyQueue, s.Run.String()+".1"); err != nil {
		t.Fatal(err)
	}
	r.work()
	r.untilNoticed(s.Run, background.BellArchived)
	r.atRest()
	if st := r.caseOf(release(1)); st.Progression != "settled" {
		t.Errorf("%+v", st)
	}
	if n := r.notices(); n != 1 {
		t.Errorf("%d receipts for one bell", n)
	}
	r.untilArchived(d, 0, onlyQueue)
	r.sound()
}

func TestRunningTheMirrorOfALetterIsNoticedOnceAndPaysNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	refusing(r)
	d := r.desk()
	s, mirror := r.work().mirrored(d, 1)
	for range 2 {
		if err := d.RunTask(onlyQueue, mirror); err != nil {
			t.Fatal(err)
		}
		r.untilNoticed(s.Run, background.MirrorRun)
		r.untilArchived(d, 1, onlyQueue)
	}
	r.untilTrue("the mirror rests", func() bool {
		info, err := d.GetTaskInfo(onlyQueue, mirror)
		return err == nil && info.State == asynq.TaskStateArchived
	})
	r.stopWork() // what is being noticed is written before this returns
	if n, calls := r.notices(), r.escrow.totalCalls(); n != 1 || calls != 1 {
		t.Errorf("%d receipts for one bell, %d calls", n, calls)
	}
	r.sound()
}

func TestDeletingTheMirrorOfALetterIsNoticedAndTheLetterStaysOpen(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	refusing(r)
	d := r.desk()
	s, mirror := r.work().mirrored(d, 1)
	if err := d.DeleteTask(onlyQueue, mirror); err != nil {
		t.Fatal(err)
	}
	r.untilNoticed(s.Run, background.MirrorRemoved)
	r.untilLooked()
	if n := r.notices(); n != 1 {
		t.Errorf("%d receipts for one bell", n)
	}
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Letter != background.LetterOpen {
		t.Errorf("%+v, %v", st, err)
	}
	r.sound()
}

// untilLooked waits until the mirrors were looked at twice: the second look began
// after now.
func (r *rig) untilLooked() {
	r.t.Helper()
	begun := r.Stats().MirrorLooks
	r.untilTrue("the mirrors are looked at", func() bool { return r.Stats().MirrorLooks >= begun+2 })
}

func TestAFlushedRedisIsNobodysDoing(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	refusing(r)
	d := r.desk()
	r.work().mirrored(d, 1)
	if err := d.redis.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	r.untilLooked()
	if n := r.notices(); n != 0 {
		t.Errorf("%d receipts blame somebody for a flush", n)
	}
	r.sound()
}

func TestDeletingTheBellOfADueRunIsNoticedAndItIsRungAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	d := r.desk()
	if err := d.PauseQueue(onlyQueue); err != nil {
		t.Fatal(err)
	}
	r.work()
	s := r.mustRing(r.mustSubmit(release(1)))
	r.until("the run is due for several sweeps", `SELECT clock_timestamp() > due_at + interval '2 s' FROM recourse.runs WHERE id = $1`, s.Run.String())
	bell := r.count(`SELECT bell FROM recourse.runs WHERE id = $1`, s.Run.String())
	if err := d.DeleteTask(onlyQueue, fmt.Sprint(s.Run, ".", bell)); err != nil {
		t.Fatal(err)
	}
	r.untilNoticed(s.Run, background.BellRemoved)
	r.until("it is rung again", `SELECT bell > $2 FROM recourse.runs WHERE id = $1`, s.Run.String(), bell)
	if err := d.UnpauseQueue(onlyQueue); err != nil {
		t.Fatal(err)
	}
	r.atRest()
	if n := r.notices(); n != 1 {
		t.Errorf("%d receipts for one deed", n)
	}
	r.sound()
}

// A run that nobody rang for has no task either, and nobody is blamed for it.
func TestABellThatWasNeverRungIsNobodysDoing(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue).work()
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SubmitTx(context.Background(), tx, release(1)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r.atRest()
	if n := r.notices(); n != 0 {
		t.Errorf("%d receipts blame somebody", n)
	}
	r.sound()
}

func TestAPausedQueueIsToldWhileItLasts(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	d := r.desk()
	r.work().untilLooked()
	if paused := r.Paused(); len(paused) != 0 {
		t.Fatalf("%v", paused)
	}
	if err := d.PauseQueue(onlyQueue); err != nil {
		t.Fatal(err)
	}
	r.untilLooked()
	if paused := r.Paused(); len(paused) != 1 || paused[0] != onlyQueue || r.Stats().Paused != 1 {
		t.Errorf("%v, %+v", paused, r.Stats())
	}
	if err := r.Healthy(context.Background()); err != nil {
		t.Errorf("a pause is an operator's right: %v", err)
	}
	if err := d.UnpauseQueue(onlyQueue); err != nil {
		t.Fatal(err)
	}
	r.untilLooked()
	if paused := r.Paused(); len(paused) != 0 {
		t.Errorf("%v", paused)
	}
	r.mustSubmit(release(1))
	r.atRest()
	r.sound()
}
