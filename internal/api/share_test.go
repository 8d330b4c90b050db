package api

import "testing"

// What is full is told by whose share it is, and what is released can be taken again.
func TestSharesAreDividedAmongKeysAndTenants(t *testing.T) {
	t.Parallel()
	s := newShares(6, 4, 2)
	one, other := Caller{Tenant: "acme", Key: "one"}, Caller{Tenant: "acme", Key: "other"}
	local, bank, last := Caller{Tenant: "acme"}, Caller{Tenant: "bank", Key: "bank"}, Caller{Tenant: "last", Key: "last"}
	var releases []func()
	take := func(what string, c Caller, n int64, want share) {
		t.Helper()
		release, full := s.acquire(c, n)
		if full != want {
			t.Errorf("%s: %q, want %q", what, full, want)
		}
		if full == shareFree {
			releases = append(releases, release)
		}
	}
	take("a key", one, 2, shareFree)
	take("more than a key may", one, 1, shareKey)
	take("another key", other, 1, shareFree)
	take("too much at once", other, 2, shareKey)
	take("no key", local, 1, shareFree)
	take("more than a tenant may", local, 1, shareTenant)
	take("a key of a full tenant", other, 1, shareTenant)
	take("another tenant", bank, 2, shareFree)
	take("more than the process has", last, 1, shareProcess)
	for _, release := range releases {
		release()
	}
	if s.taken != 0 || len(s.byTenant) != 0 || len(s.byKeys) != 0 {
		t.Errorf("%d are taken, by %v and %v", s.taken, s.byTenant, s.byKeys)
	}
	take("the key again", one, 2, shareFree)
	unbounded := newShares(6, 4, 0)
	if _, full := unbounded.acquire(one, 4); full != shareFree {
		t.Errorf("without a bound of keys: %q", full)
	}
}
