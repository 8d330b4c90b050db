package postadjudication_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig/taskinspector"
	"github.com/recourse-dev/recourse/receipts"
)

func tamperingReceipts(r *rig.Rig) int {
	r.T.Helper()
	return r.CountReceipts(rig.Receipts{Subtype: receipts.OutOfBandChangeDetected})
}

// untilTamperingRecorded waits for the receipt that names the change of a run's task.
func untilTamperingRecorded(r *rig.Rig, run background.RunID, what string) {
	r.T.Helper()
	recorded := rig.Receipts{Run: run, Source: "operations", Subtype: receipts.OutOfBandChangeDetected, Payload: map[string]any{"reason_code": what}}
	r.Wait("a receipt of "+what, func() bool { return r.CountReceipts(recorded) > 0 })
}

// archivedTask waits for a run's death and its archived task, whichever delivery that is of.
func archivedTask(r *rig.Rig, d taskinspector.Inspector, n int) (s postadjudication.Submitted, taskID string) {
	r.T.Helper()
	s = r.MustSubmit(rig.Release(n))
	r.WaitNoneLive()
	taskinspector.WaitArchived(r, d, 1, rig.OnlyQueue)
	// A second notification would leave an archived task of its own.
	r.Wait("asynq holds nothing but the archive", func() bool {
		info, err := d.GetQueueInfo(rig.OnlyQueue)
		return err == nil && info.Pending+info.Active+info.Scheduled+info.Retry == 0
	})
	untilArchiveScanned(r)
	archived, err := d.ListArchivedTasks(rig.OnlyQueue)
	if err != nil || len(archived) != 1 {
		r.T.Fatalf("%d archived tasks, %v", len(archived), err)
	}
	return s, archived[0].ID
}

func refuseAll(r *rig.Rig) {
	r.Escrow.Answer(rig.Refuses)
}

func TestArchivingTheTaskOfALiveRunIsDetectedAndChangesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := taskinspector.New(r)
	s := r.MustNotify(r.MustSubmit(rig.Release(1))) // no worker runs yet
	if err := d.ArchiveTask(rig.OnlyQueue, s.Run.String()+".1"); err != nil {
		t.Fatal(err)
	}
	r.StartWorkers()
	untilTamperingRecorded(r, s.Run, background.TaskArchived)
	r.WaitNoneLive()
	if st := r.CaseOf(rig.Release(1)); st.Progression != "settled" {
		t.Errorf("%+v", st)
	}
	if n := tamperingReceipts(r); n != 1 {
		t.Errorf("%d receipts for one delivery", n)
	}
	taskinspector.WaitArchived(r, d, 0, rig.OnlyQueue)
	r.MustAudit()
}

func TestRunningTheArchivedTaskOfALetterIsDetectedOnceAndPaysNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	refuseAll(r)
	d := taskinspector.New(r)
	s, taskID := archivedTask(r.StartWorkers(), d, 1)
	for range 2 {
		if err := d.RunTask(rig.OnlyQueue, taskID); err != nil {
			t.Fatal(err)
		}
		untilTamperingRecorded(r, s.Run, background.ArchivedTaskRequeued)
		taskinspector.WaitArchived(r, d, 1, rig.OnlyQueue)
	}
	r.Wait("the archived task is left alone", func() bool {
		info, err := d.GetTaskInfo(rig.OnlyQueue, taskID)
		return err == nil && info.State == asynq.TaskStateArchived
	})
	r.StopWorkers() // what is detected is written before this returns
	if n, calls := tamperingReceipts(r), r.Escrow.TotalCalls(); n != 1 || calls != 1 {
		t.Errorf("%d receipts for one delivery, %d calls", n, calls)
	}
	r.MustAudit()
}

func TestDeletingTheArchivedTaskOfALetterIsDetectedAndTheLetterStaysOpen(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	refuseAll(r)
	d := taskinspector.New(r)
	s, taskID := archivedTask(r.StartWorkers(), d, 1)
	if err := d.DeleteTask(rig.OnlyQueue, taskID); err != nil {
		t.Fatal(err)
	}
	untilTamperingRecorded(r, s.Run, background.ArchivedTaskRemoved)
	untilArchiveScanned(r)
	if n := tamperingReceipts(r); n != 1 {
		t.Errorf("%d receipts for one delivery", n)
	}
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Letter != background.LetterOpen {
		t.Errorf("%+v, %v", st, err)
	}
	r.MustAudit()
}

// untilArchiveScanned waits until archived tasks were scanned twice: the second scan began after
// now.
func untilArchiveScanned(r *rig.Rig) {
	r.T.Helper()
	begun := r.Health().Stats().ArchiveScans
	r.Wait("archived tasks are scanned", func() bool { return r.Health().Stats().ArchiveScans >= begun+2 })
}

func TestAFlushedRedisIsNotTampering(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	refuseAll(r)
	d := taskinspector.New(r)
	archivedTask(r.StartWorkers(), d, 1)
	if err := d.Redis.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	untilArchiveScanned(r)
	if n := tamperingReceipts(r); n != 0 {
		t.Errorf("%d receipts of tampering after a flush", n)
	}
	r.MustAudit()
}

func TestDeletingTheNotificationOfADueRunIsDetectedAndItIsSentAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := taskinspector.New(r)
	if err := d.PauseQueue(rig.OnlyQueue); err != nil {
		t.Fatal(err)
	}
	r.StartWorkers()
	s := r.MustNotify(r.MustSubmit(rig.Release(1)))
	r.WaitDueSince(s.Run, 2*time.Second) // several sweeps
	notification := r.Notifications(s.Run)
	if err := d.DeleteTask(rig.OnlyQueue, fmt.Sprint(s.Run, ".", notification)); err != nil {
		t.Fatal(err)
	}
	untilTamperingRecorded(r, s.Run, background.TaskRemoved)
	r.Wait("it is notified again", func() bool { return r.Notifications(s.Run) > notification })
	if err := d.UnpauseQueue(rig.OnlyQueue); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if n := tamperingReceipts(r); n != 1 {
		t.Errorf("%d receipts for one change", n)
	}
	r.MustAudit()
}

// A run that was never notified has no task, and no tampering is recorded for it.
func TestANotificationThatWasNeverSentIsNotTampering(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue).StartWorkers()
	tx, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SubmitTx(context.Background(), tx, rig.Release(1)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if n := tamperingReceipts(r); n != 0 {
		t.Errorf("%d receipts of tampering", n)
	}
	r.MustAudit()
}

func TestAPausedQueueIsReportedWhileItIsPaused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := taskinspector.New(r)
	untilArchiveScanned(r.StartWorkers())
	if paused := r.Health().Paused(); len(paused) != 0 {
		t.Fatalf("%v", paused)
	}
	if err := d.PauseQueue(rig.OnlyQueue); err != nil {
		t.Fatal(err)
	}
	untilArchiveScanned(r)
	if paused := r.Health().Paused(); len(paused) != 1 || paused[0] != rig.OnlyQueue || r.Health().Stats().PausedQueues != 1 {
		t.Errorf("%v, %+v", paused, r.Health().Stats())
	}
	if err := r.Health().Check(context.Background()); err != nil {
		t.Errorf("a pause is an operator's right: %v", err)
	}
	if err := d.UnpauseQueue(rig.OnlyQueue); err != nil {
		t.Fatal(err)
	}
	untilArchiveScanned(r)
	if paused := r.Health().Paused(); len(paused) != 0 {
		t.Errorf("%v", paused)
	}
	r.MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	r.MustAudit()
}
