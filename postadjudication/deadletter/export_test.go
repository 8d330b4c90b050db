package deadletter

import "maps"

// ConditionsInUse returns how many slots for conditions are in use, of the process and by tenant.
func (l Letters) ConditionsInUse() (active int, byTenant map[string]int) {
	m := l.s.Limiter
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.active, maps.Clone(m.byTenant)
}
