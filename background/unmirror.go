package background

import (
	"context"
	"errors"
)

// archivedNumbersBack is how many of a run's bells are looked through for its mirror.
const archivedNumbersBack = 8

// RemoveArchivedTasks removes the mirrors of letters that are not open any more from asynq's
// archive, at once: the newest bell's, or that of one before it, as a bell that was rung
// again may not have come yet when the run died. Without it they go all the same, one page
// a look.
func (m *Manager) RemoveArchivedTasks(ctx context.Context, letters []Run) error {
	byQueue := map[string][]string{}
	for _, r := range letters {
		for first := max(0, r.NotificationNumber-archivedNumbersBack+1); r.NotificationNumber >= first; r.NotificationNumber-- {
			byQueue[r.Queue] = append(byQueue[r.Queue], taskID(r))
		}
	}
	var errs []error
	for queue, ids := range byQueue {
		errs = append(errs, m.archive.remove(ctx, queue, ids))
	}
	return errors.Join(errs...)
}
