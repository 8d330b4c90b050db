package background

import "time"

// admitPatience is for how long a delivery waits for the journal to come back
// before it is handed back.
const admitPatience = time.Second

// slots bounds how many handlers are called at one time. A run that waits for
// its next attempt holds none.
type slots struct{ free chan struct{} }

func newSlots(n int) *slots {
	s := &slots{free: make(chan struct{}, n)}
	for range n {
		s.free <- struct{}{}
	}
	return s
}

// take waits for a slot; it reports false when stop closes first.
func (s *slots) take(stop <-chan struct{}) bool {
	select {
	case <-stop: // a free slot must not win against a shutdown
		return false
	default:
	}
	select {
	case <-s.free:
		return true
	case <-stop:
		return false
	}
}

func (s *slots) release() { s.free <- struct{}{} }

// admit takes a slot for a delivery while evidence can be written. Its error says
// when asynq should bring the run again.
func (m *Manager) admit() error {
	for {
		if err := m.awaitHealth(); err != nil {
			return err
		}
		if !m.slots.take(m.stop) {
			return &handBack{at: m.now()}
		}
		if _, _, alive := m.session.current(); !alive {
			m.slots.release()
			return errUnavailable
		}
		if m.Healthy() == nil {
			return nil
		}
		m.slots.release() // it went while the delivery stood in line
	}
}

func (m *Manager) awaitHealth() error {
	writable := m.health.writable()
	select {
	case <-writable:
		return nil
	default:
	}
	patience := time.NewTimer(admitPatience)
	defer patience.Stop()
	select {
	case <-writable:
		return nil
	case <-m.stop:
		return &handBack{at: m.now()}
	case <-patience.C:
		return errUnavailable
	}
}
