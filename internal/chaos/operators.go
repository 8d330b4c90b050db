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

// touching is what a person may do to tasks in a console, and what receipts may call it
// afterwards, if it is noticed.
type touching struct {
	list  func(i *asynq.Inspector, queue string, opts ...asynq.ListOption) ([]*asynq.TaskInfo, error)
	do    func(i *asynq.Inspector, queue, task string) error
	calls []string
}

var (
	deletePending = touching{(*asynq.Inspector).ListPendingTasks, (*asynq.Inspector).DeleteTask,
		[]string{background.BellRemoved, background.MirrorRemoved}}
	archivePending = touching{(*asynq.Inspector).ListPendingTasks, (*asynq.Inspector).ArchiveTask,
		[]string{background.BellArchived}}
	runArchived = touching{(*asynq.Inspector).ListArchivedTasks, (*asynq.Inspector).RunTask,
		[]string{background.MirrorRun, background.MirrorRemoved}}
	deleteArchived = touching{(*asynq.Inspector).ListArchivedTasks, (*asynq.Inspector).DeleteTask,
		[]string{background.MirrorRemoved, background.BellRemoved}}
)

// touch does something to every task of a queue that is there, one by one, and notes to
// which. A task that is somewhere else by then is left alone.
func touch(i *asynq.Inspector, queue string, d *deeds, t touching) (n int, err error) {
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
		d.did(task.ID, time.Now(), t.calls...) // before it is done: it may be noticed at once
		if err := t.do(i, queue, task.ID); err != nil {
			if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) || !isThere(i, queue, task) {
				continue
			}
			return n, err
		}
		n++
	}
	return n, nil
}

// isThere reports whether a task still is in the state in which it was listed.
func isThere(i *asynq.Inspector, queue string, task *asynq.TaskInfo) bool {
	now, err := i.GetTaskInfo(queue, task.ID)
	return err == nil && now.State == task.State
}

// operator does something to all tasks of all queues, as a person may.
func operator(t touching) func(context.Context, *arena, *rand.Rand) (string, error) {
	return func(_ context.Context, a *arena, _ *rand.Rand) (string, error) {
		queues, err := a.inspector.Queues()
		if err != nil {
			return "", err
		}
		sum := 0
		for _, q := range queues {
			n, err := touch(a.inspector, q, a.deeds, t)
			if err != nil {
				return "", err
			}
			sum += n
		}
		return fmt.Sprintf("%d tasks", sum), nil
	}
}
