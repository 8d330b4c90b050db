package background

// BreakerOpen reports whether claims of a run's target are stopped or only let through one by
// one, as far as this process knows.
func (m *Manager) BreakerOpen(r Run) bool {
	known := *m.breakers.known.Load()
	one, all := m.targets(r)
	_, held := known[one]
	_, heldForAll := known[all]
	return held || heldForAll
}
