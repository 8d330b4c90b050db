package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
)

// taskAction is what a person may do to tasks in a console, and what receipts may call it
// afterwards, if it is noticed.
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

// tamperQueue does something to every task of a queue that is there, one by one, and notes to
// which. A task that is somewhere else by then is left alone.
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
		d.record(task.ID, time.Now(), t.reasonCodes...) // before it is done: it may be noticed at once
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

// isUnchanged reports whether a task still is in the state in which it was listed.
func isUnchanged(i *asynq.Inspector, queue string, task *asynq.TaskInfo) bool {
	now, err := i.GetTaskInfo(queue, task.ID)
	return err == nil && now.State == task.State
}

// tamperAllQueues does something to all tasks of all queues, as a person may.
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
