package background

// Braked reports whether claims of a run's target are stopped, as far as this process knows.
func (m *Manager) Braked(r Run) bool {
	_, held := (*m.brakes.known.Load())[r.target()]
	return held
}
