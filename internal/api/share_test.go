package api

import "testing"

// What is full is told by whose share it is, and what is released can be taken again.
func TestQuotasAreDividedAmongKeysAndTenants(t *testing.T) {
	t.Parallel()
	s := newQuota(6, 4, 2)
	one, other := Caller{Tenant: "acme", Key: "one"}, Caller{Tenant: "acme", Key: "other"}
	local, bank, last := Caller{Tenant: "acme"}, Caller{Tenant: "bank", Key: "bank"}, Caller{Tenant: "last", Key: "last"}
	var releases []func()
	take := func(what string, c Caller, n int64, want quotaScope) {
		t.Helper()
		release, full := s.acquire(c, n)
		if full != want {
			t.Errorf("%s: %q, want %q", what, full, want)
		}
		if full == scopeNone {
			releases = append(releases, release)
		}
	}
	take("a key", one, 2, scopeNone)
	take("more than a key may", one, 1, scopeKey)
	take("another key", other, 1, scopeNone)
	take("too much at once", other, 2, scopeKey)
	take("no key", local, 1, scopeNone)
	take("more than a tenant may", local, 1, scopeTenant)
	take("a key of a full tenant", other, 1, scopeTenant)
	take("another tenant", bank, 2, scopeNone)
	take("more than the process has", last, 1, scopeProcess)
	for _, release := range releases {
		release()
	}
	if s.used != 0 || len(s.byTenant) != 0 || len(s.byKey) != 0 {
		t.Errorf("%d are taken, by %v and %v", s.used, s.byTenant, s.byKey)
	}
	take("the key again", one, 2, scopeNone)
	unbounded := newQuota(6, 4, 0)
	if _, full := unbounded.acquire(one, 4); full != scopeNone {
		t.Errorf("without a bound of keys: %q", full)
	}
}
