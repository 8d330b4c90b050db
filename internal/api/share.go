package api

import "sync"

// quota divides a room of the process among keys and tenants, so that one of them can't
// take all of it.
type quota struct {
	process, tenant, key int64 // bounds; of the key 0: none

	mu              sync.Mutex
	used            int64
	byTenant, byKey map[string]int64
}

func newQuota(process, tenant, key int64) *quota {
	return &quota{process: process, tenant: tenant, key: key, byTenant: map[string]int64{}, byKey: map[string]int64{}}
}

// quotaScope is what is full when nothing can be taken.
type quotaScope string

const (
	scopeNone    quotaScope = ""
	scopeKey     quotaScope = "key"
	scopeTenant  quotaScope = "tenant"
	scopeProcess quotaScope = "process"
)

// acquire takes n for a caller until release is called, once. It returns what is full
// otherwise. Whoever needs no key has the share of the tenant only.
func (s *quota) acquire(c Caller, n int64) (release func(), exceeded quotaScope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.key > 0 && c.Key != "" && s.byKey[c.Key]+n > s.key:
		return nil, scopeKey
	case s.byTenant[c.Tenant]+n > s.tenant:
		return nil, scopeTenant
	case s.used+n > s.process:
		return nil, scopeProcess
	}
	s.add(c, n)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.add(c, -n)
	}, scopeNone
}

func (s *quota) add(c Caller, n int64) {
	s.used += n
	addTo(s.byTenant, c.Tenant, n)
	addTo(s.byKey, c.Key, n)
}

// addTo keeps no names of which nothing is taken.
func addTo(by map[string]int64, name string, n int64) {
	if by[name] += n; by[name] == 0 {
		delete(by, name)
	}
}
