package background

// BreakerOpen reports whether claims of a run's target are stopped or only let through one by
// one, as far as this process knows.
func (m *Manager) BreakerOpen(r Run) bool {
	known := *m.breakers.current.Load()
	own, all := m.breakerTargets(r)
	_, ownBlocks := known[own]
	_, allBlocks := known[all]
	return ownBlocks || allBlocks
}
