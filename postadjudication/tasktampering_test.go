package postadjudication

import (
	"context"
	"fmt"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

func (r *rig) tamperingReceipts() int {
	r.t.Helper()
	return r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'out-of-band-change-detected'`)
}

// untilTamperingRecorded waits for the receipt that names the change of a run's task.
func (r *rig) untilTamperingRecorded(run background.RunID, what string) {
	r.t.Helper()
	r.until("a receipt of "+what, `SELECT EXISTS (SELECT FROM recourse.receipts WHERE run_id = $1 AND source = 'operations'
		AND subtype = 'out-of-band-change-detected' AND body::json -> 'payload' ->> 'reason_code' = $2)`, run.String(), what)
}

// archivedTask waits for a run's death and its archived task, whichever delivery that is of.
func (r *rig) archivedTask(d asynqInspector, n int) (s Submitted, taskID string) {
	r.t.Helper()
	s = r.mustSubmit(release(n))
	r.untilNoneLive()
	r.untilArchivedTasks(d, 1, onlyQueue)
	// A second notification would leave an archived task of its own.
	r.untilTrue("asynq holds nothing but the archive", func() bool {
		info, err := d.GetQueueInfo(onlyQueue)
		return err == nil && info.Pending+info.Active+info.Scheduled+info.Retry == 0
	})
	r.untilArchiveScanned()
	archived, err := d.ListArchivedTasks(onlyQueue)
	if err != nil || len(archived) != 1 {
		r.t.Fatalf("%d archived tasks, %v", len(archived), err)
	}
	return s, archived[0].ID
}

func refuseAll(r *rig) {
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return refused() }
}

func TestArchivingTheTaskOfALiveRunIsDetectedAndChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	d := r.inspector()
	s := r.mustNotify(r.mustSubmit(release(1))) // no worker runs yet
	if err := d.ArchiveTask(onlyQueue, s.Run.String()+".1"); err != nil {
		t.Fatal(err)
	}
	r.startWorkers()
	r.untilTamperingRecorded(s.Run, background.TaskArchived)
	r.untilNoneLive()
	if st := r.caseOf(release(1)); st.Progression != "settled" {
		t.Errorf("%+v", st)
	}
	if n := r.tamperingReceipts(); n != 1 {
		t.Errorf("%d receipts for one delivery", n)
	}
	r.untilArchivedTasks(d, 0, onlyQueue)
	r.mustAudit()
}

func TestRunningTheArchivedTaskOfALetterIsDetectedOnceAndPaysNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	refuseAll(r)
	d := r.inspector()
	s, taskID := r.startWorkers().archivedTask(d, 1)
	for range 2 {
		if err := d.RunTask(onlyQueue, taskID); err != nil {
			t.Fatal(err)
		}
		r.untilTamperingRecorded(s.Run, background.ArchivedTaskRequeued)
		r.untilArchivedTasks(d, 1, onlyQueue)
	}
	r.untilTrue("the archived task is left alone", func() bool {
		info, err := d.GetTaskInfo(onlyQueue, taskID)
		return err == nil && info.State == asynq.TaskStateArchived
	})
	r.stopWork() // what is detected is written before this returns
	if n, calls := r.tamperingReceipts(), r.escrow.totalCalls(); n != 1 || calls != 1 {
		t.Errorf("%d receipts for one delivery, %d calls", n, calls)
	}
	r.mustAudit()
}

func TestDeletingTheArchivedTaskOfALetterIsDetectedAndTheLetterStaysOpen(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	refuseAll(r)
	d := r.inspector()
	s, taskID := r.startWorkers().archivedTask(d, 1)
	if err := d.DeleteTask(onlyQueue, taskID); err != nil {
		t.Fatal(err)
	}
	r.untilTamperingRecorded(s.Run, background.ArchivedTaskRemoved)
	r.untilArchiveScanned()
	if n := r.tamperingReceipts(); n != 1 {
		t.Errorf("%d receipts for one delivery", n)
	}
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Letter != background.LetterOpen {
		t.Errorf("%+v, %v", st, err)
	}
	r.mustAudit()
}

// untilArchiveScanned waits until archived tasks were scanned twice: the second scan began after
// now.
func (r *rig) untilArchiveScanned() {
	r.t.Helper()
	begun := r.Health().Stats().ArchiveScans
	r.untilTrue("archived tasks are scanned", func() bool { return r.Health().Stats().ArchiveScans >= begun+2 })
}

func TestAFlushedRedisIsNotTampering(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	refuseAll(r)
	d := r.inspector()
	r.startWorkers().archivedTask(d, 1)
	if err := d.redis.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	r.untilArchiveScanned()
	if n := r.tamperingReceipts(); n != 0 {
		t.Errorf("%d receipts of tampering after a flush", n)
	}
	r.mustAudit()
}

func TestDeletingTheNotificationOfADueRunIsDetectedAndItIsSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	d := r.inspector()
	if err := d.PauseQueue(onlyQueue); err != nil {
		t.Fatal(err)
	}
	r.startWorkers()
	s := r.mustNotify(r.mustSubmit(release(1)))
	r.until("the run is due for several sweeps", `SELECT clock_timestamp() > due_at + interval '2 s' FROM recourse.runs WHERE id = $1`, s.Run.String())
	notification := r.count(`SELECT notification_number FROM recourse.runs WHERE id = $1`, s.Run.String())
	if err := d.DeleteTask(onlyQueue, fmt.Sprint(s.Run, ".", notification)); err != nil {
		t.Fatal(err)
	}
	r.untilTamperingRecorded(s.Run, background.TaskRemoved)
	r.until("it is notified again", `SELECT notification_number > $2 FROM recourse.runs WHERE id = $1`, s.Run.String(), notification)
	if err := d.UnpauseQueue(onlyQueue); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	if n := r.tamperingReceipts(); n != 1 {
		t.Errorf("%d receipts for one change", n)
	}
	r.mustAudit()
}

// A run that was never notified has no task, and no tampering is recorded for it.
func TestANotificationThatWasNeverSentIsNotTampering(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue).startWorkers()
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
	r.untilNoneLive()
	if n := r.tamperingReceipts(); n != 0 {
		t.Errorf("%d receipts of tampering", n)
	}
	r.mustAudit()
}

func TestAPausedQueueIsReportedWhileItIsPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	d := r.inspector()
	r.startWorkers().untilArchiveScanned()
	if paused := r.Health().Paused(); len(paused) != 0 {
		t.Fatalf("%v", paused)
	}
	if err := d.PauseQueue(onlyQueue); err != nil {
		t.Fatal(err)
	}
	r.untilArchiveScanned()
	if paused := r.Health().Paused(); len(paused) != 1 || paused[0] != onlyQueue || r.Health().Stats().PausedQueues != 1 {
		t.Errorf("%v, %+v", paused, r.Health().Stats())
	}
	if err := r.Health().Check(context.Background()); err != nil {
		t.Errorf("a pause is an operator's right: %v", err)
	}
	if err := d.UnpauseQueue(onlyQueue); err != nil {
		t.Fatal(err)
	}
	r.untilArchiveScanned()
	if paused := r.Health().Paused(); len(paused) != 0 {
		t.Errorf("%v", paused)
	}
	r.mustSubmit(release(1))
	r.untilNoneLive()
	r.mustAudit()
}
