package background

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

const (
	// asynq's own counter bounds nothing here: it counts deliveries.
	deliveriesMax = math.MaxInt32
	// deliveryTimeout covers all attempts and waits of one delivery; what bounds an
	// attempt is its family's time limit.
	deliveryTimeout = 24 * time.Hour
)

// Notify rings for a run: it puts the asynq task that brings the run to a worker.
// The run's Queue and Bell are those of the journal. A bell that rings already
// is rung. On an error the run stays without a bell until the sweeper finds it.
func (m *Manager) Notify(ctx context.Context, r Run) error {
	task := asynq.NewTaskWithHeaders(r.Family, []byte(r.ID.String()), m.tracing.headers(ctx))
	failpoint.Hit(failpoint.NotifyBefore, failpoint.Task)
	_, err := m.client.EnqueueContext(ctx, task, asynq.Queue(r.Queue), asynq.TaskID(taskID(r)),
		asynq.MaxRetry(deliveriesMax), asynq.Timeout(deliveryTimeout))
	failpoint.Hit(failpoint.NotifyAfter, failpoint.Task)
	if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
		m.wakeups.wake()
		return nil
	}
	m.sweeper.requestFullScan()
	return fmt.Errorf("background: ring for run %s: %w", r.ID, err)
}

func taskID(r Run) string { return r.ID.String() + "." + strconv.Itoa(r.NotificationNumber) }

// notificationNumberOf reads the bell number out of a task id; -1 when it is not one of ours.
func notificationNumberOf(taskID string) int {
	_, number, found := strings.Cut(taskID, ".")
	n, err := strconv.Atoi(number)
	if !found || err != nil || n < 0 {
		return -1
	}
	return n
}
