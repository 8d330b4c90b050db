package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// tamperLog records what was done to tasks outside of Recourse. It is safe for concurrent use.
type tamperLog struct {
	mu  sync.Mutex
	all map[string][]tampering // by run
}

// tampering is an act on a task of a run, with the reason codes that receipts may have for it.
type tampering struct {
	at          time.Time
	reasonCodes []string
}

// maxTamperClockSkew is how long before an act the time of its receipt may be: a worker's clock may be off.
const maxTamperClockSkew = 10 * time.Second

func newTamperLog() *tamperLog { return &tamperLog{all: map[string][]tampering{}} }

// record adds an act on a task.
func (d *tamperLog) record(task string, at time.Time, reasonCodes ...string) {
	run, _, _ := strings.Cut(task, ".")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all[run] = append(d.all[run], tampering{at, reasonCodes})
}

// explains reports whether the log has the act that a receipt reports.
func (d *tamperLog) explains(run background.RunID, what string, at time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, done := range d.all[run.String()] {
		for _, name := range done.reasonCodes {
			if name == what && at.After(done.at.Add(-maxTamperClockSkew)) {
				return true
			}
		}
	}
	return false
}

// checkTampering compares every receipt that reports tampering with the log.
func (v *verification) checkTampering(c *caseTrail, d *tamperLog) {
	for _, r := range c.receipts {
		if r.Subtype != receipts.OutOfBandChangeDetected {
			continue
		}
		v.OutOfBand[r.p.ReasonCode]++
		if !d.explains(r.Run, r.p.ReasonCode, r.At) {
			v.FalseReceipts++
			v.fail("a receipt of run %s reports %s, and nobody did that to its task %s", r.Run, r.p.ReasonCode, r.p.DispatchReference)
		}
	}
}

// taskAction is an act on tasks in a console, with the reason codes that receipts may have for it
// if it is noticed.
type taskAction struct {
	list        func(i *asynq.Inspector, queue string, opts ...asynq.ListOption) ([]*asynq.TaskInfo, error)
	do          func(i *asynq.Inspector, queue, task string) error
	reasonCodes []string
}

var (
	deletePending = taskAction{(*asynq.Inspector).ListPendingTasks, (*asynq.Inspector).DeleteTask,
		[]string{background.TaskRemoved, background.ArchivedTaskRemoved}}
	archivePending = taskAction{(*asynq.Inspector).ListPendingTasks, (*asynq.Inspector).ArchiveTask,
		[]string{background.TaskArchived}}
	runArchived = taskAction{(*asynq.Inspector).ListArchivedTasks, (*asynq.Inspector).RunTask,
		[]string{background.ArchivedTaskRequeued, background.ArchivedTaskRemoved}}
	deleteArchived = taskAction{(*asynq.Inspector).ListArchivedTasks, (*asynq.Inspector).DeleteTask,
		[]string{background.ArchivedTaskRemoved, background.TaskRemoved}}
)

// tamperQueue acts on every listed task of a queue, one by one, and records which. A task whose
// state has changed since is skipped.
func tamperQueue(i *asynq.Inspector, queue string, d *tamperLog, t taskAction) (n int, err error) {
	var tasks []*asynq.TaskInfo
	const size = 1000
	for page := 1; ; page++ {
		more, err := t.list(i, queue, asynq.PageSize(size), asynq.Page(page))
		if errors.Is(err, asynq.ErrQueueNotFound) {
			break
		}
		if err != nil {
			return 0, err
		}
		if tasks = append(tasks, more...); len(more) < size {
			break
		}
	}
	for _, task := range tasks {
		d.record(task.ID, time.Now(), t.reasonCodes...) // before the act: it may be noticed at once
		if err := t.do(i, queue, task.ID); err != nil {
			if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) || !isUnchanged(i, queue, task) {
				continue
			}
			return n, err
		}
		n++
	}
	return n, nil
}

// isUnchanged reports whether a task is still in the state of the listing.
func isUnchanged(i *asynq.Inspector, queue string, task *asynq.TaskInfo) bool {
	now, err := i.GetTaskInfo(queue, task.ID)
	return err == nil && now.State == task.State
}

// tamperAllQueues acts on all tasks of all queues, as a person may.
func tamperAllQueues(t taskAction) func(context.Context, *testbed, *rand.Rand) (string, error) {
	return func(_ context.Context, a *testbed, _ *rand.Rand) (string, error) {
		queues, err := a.inspector.Queues()
		if err != nil {
			return "", err
		}
		sum := 0
		for _, q := range queues {
			n, err := tamperQueue(a.inspector, q, a.tampering, t)
			if err != nil {
				return "", err
			}
			sum += n
		}
		return fmt.Sprintf("%d tasks", sum), nil
	}
}
