package background

import "time"

// maxInPlaceWait is the longest wait that is spent holding the delivery. asynq cuts times
// to whole seconds; longer waits go back to it.
const maxInPlaceWait = time.Second

// waitUntilDue waits until a run is due, or until it is woken because the run changed or
// its circuit breaker opened.
// It holds no slot. A wait that is too long, and every wait at shutdown, ends with
// a redeliverAt: the run stays scheduled and asynq brings it again.
func (m *Manager) waitUntilDue(run Run, wake <-chan struct{}) error {
	due := run.DueAt
	left := due.Sub(m.now())
	if left > maxInPlaceWait {
		return &redeliverAt{at: due}
	}
	deadline := time.Now().Add(left) // monotonic: no clock that is set meanwhile moves it
	m.waiting.Add(1)
	defer m.waiting.Add(-1)
	for {
		opened := m.breakers.nextOpening()
		left := time.Until(deadline) // asked again after each wake: timers err
		if left <= 0 || m.breakers.blocks(run) {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-opened:
			timer.Stop()
		case <-wake:
			timer.Stop()
			return nil
		case <-m.stop:
			timer.Stop()
			return &redeliverAt{at: due}
		}
	}
}
