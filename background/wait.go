package background

import "time"

// inPlace is the longest wait that is spent holding the delivery. asynq cuts times
// to whole seconds; longer waits go back to it.
const inPlace = time.Second

// pause waits until a run is due, or until it is woken because the run changed or
// its brake was pulled.
// It holds no slot. A wait that is too long, and every wait at shutdown, ends with
// a handBack: the run stays scheduled and asynq brings it again.
func (m *Manager) pause(run Run, wake <-chan struct{}) error {
	due := run.DueAt
	if due.Sub(m.now()) > inPlace {
		return &handBack{at: due}
	}
	m.waiting.Add(1)
	defer m.waiting.Add(-1)
	for {
		closing := m.brakes.closing()
		left := due.Sub(m.now()) // asked again after each wake: timers and clocks err
		if left <= 0 || m.brakes.bars(run) {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-closing:
			timer.Stop()
		case <-wake:
			timer.Stop()
			return nil
		case <-m.stop:
			timer.Stop()
			return &handBack{at: due}
		}
	}
}
