package background

// BreakerOpen reports whether claims of a run's target are stopped or only let through one by
// one, as far as this process knows.
func (m *Manager) BreakerOpen(r Run) bool {
	_, held := (*m.brakes.known.Load())[r.target()]
	return held
}
