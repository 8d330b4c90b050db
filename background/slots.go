package background

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
