package api

import "sync"

// shares divides a room of the process among keys and tenants, so that one of them can't
// take all of it.
type shares struct {
	process, tenant, key int64 // bounds; of the key 0: none

	mu               sync.Mutex
	taken            int64
	byTenant, byKeys map[string]int64
}

func newShares(process, tenant, key int64) *shares {
	return &shares{process: process, tenant: tenant, key: key, byTenant: map[string]int64{}, byKeys: map[string]int64{}}
}

// share is what is full when nothing can be taken.
type share string

const (
	shareFree    share = ""
	shareKey     share = "key"
	shareTenant  share = "tenant"
	shareProcess share = "process"
)

// acquire takes n for a caller until release is called, once. It returns what is full
// otherwise. Whoever needs no key has the share of the tenant only.
func (s *shares) acquire(c Caller, n int64) (release func(), full share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.key > 0 && c.Key != "" && s.byKeys[c.Key]+n > s.key:
		return nil, shareKey
	case s.byTenant[c.Tenant]+n > s.tenant:
		return nil, shareTenant
	case s.taken+n > s.process:
		return nil, shareProcess
	}
	s.add(c, n)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.add(c, -n)
	}, shareFree
}

func (s *shares) add(c Caller, n int64) {
	s.taken += n
	addTo(s.byTenant, c.Tenant, n)
	addTo(s.byKeys, c.Key, n)
}

// addTo keeps no names of which nothing is taken.
func addTo(by map[string]int64, name string, n int64) {
	if by[name] += n; by[name] == 0 {
		delete(by, name)
	}
}
