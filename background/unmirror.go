package background

import (
	"context"
	"errors"
)

// Unmirror removes the mirrors of letters that are not open any more from asynq's
// archive, at once. Without it they go all the same, one page a look.
func (m *Manager) Unmirror(ctx context.Context, letters []Run) error {
	byQueue := map[string][]string{}
	for _, r := range letters {
		byQueue[r.Queue] = append(byQueue[r.Queue], taskID(r))
	}
	var errs []error
	for queue, ids := range byQueue {
		errs = append(errs, m.mirrors.remove(ctx, queue, ids))
	}
	return errors.Join(errs...)
}
