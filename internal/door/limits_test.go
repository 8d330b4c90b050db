package door

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recourse-dev/recourse/internal/access"
)

// countingStore has some keys, and counts its calls.
type countingStore struct {
	keys  map[string]access.Key
	finds int
}

func (s *countingStore) FindKey(_ context.Context, prefix string) (access.Key, error) {
	s.finds++
	k, there := s.keys[prefix]
	if !there {
		return k, access.ErrUnknown
	}
	return k, nil
}

func (*countingStore) UseKey(context.Context, uuid.UUID, time.Time) error { return nil }

func (s *countingStore) mint() string {
	token, prefix, digest := access.Mint()
	s.keys[prefix] = access.Key{Prefix: prefix, Digest: digest, Tenant: "acme", Roles: []access.Role{access.Auditor}}
	return token
}

// Unknown keys cause a bounded number of look-ups in the store, and do not lock out a client at
// the same address whose key was found before.
func TestLookUpsOfKeysThatAreNotThereAreBounded(t *testing.T) {
	t.Parallel()
	store := &countingStore{keys: map[string]access.Key{}}
	now := time.Now()
	keyring, err := access.NewKeyring(store, func() time.Time { return now }, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	d := &Door{keys: keyring, log: zap.NewNop(), access: &accessLog{log: zap.NewNop(), byAddress: map[string]*failureCount{}}}
	for _, f := range []struct {
		to     **keyedLimiter
		atOnce int
	}{{&d.keyFailures, 3}, {&d.keyLookups, 4}} {
		if *f.to, err = newKeyedLimiter(0.001, f.atOnce); err != nil {
			t.Fatal(err)
		}
	}
	// show returns the status with which a token is refused; 0: it is not refused.
	show := func(token, from string) int {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/api/v1/breakers", nil)
		r.RemoteAddr = from + ":1"
		r.Header.Set("Authorization", "Bearer "+token)
		_, err := d.authenticate(r)
		var refused *Refusal
		if errors.As(err, &refused) {
			return refused.Status
		}
		if err != nil {
			t.Fatal(err)
		}
		return 0
	}
	before, late := store.mint(), store.mint()
	if status := show(before, "10.0.0.1"); status != 0 {
		t.Fatal(status)
	}
	store.finds = 0
	answers := map[int]int{}
	for range 500 {
		forged, _, _ := access.Mint()
		answers[show(forged, "10.0.0.1")]++
	}
	if store.finds != 3+4 || answers[http.StatusUnauthorized] != 3 || answers[http.StatusTooManyRequests] != 497 {
		t.Errorf("%d look-ups, answers %v", store.finds, answers)
	}
	now = now.Add(access.CacheTTL) // the key is looked up again
	if status := show(before, "10.0.0.1"); status != 0 || store.finds != 8 {
		t.Errorf("a key that was here before: %d, %d look-ups", status, store.finds)
	}
	if status := show(late, "10.0.0.2"); status != 0 {
		t.Errorf("a key from elsewhere: %d", status)
	}
	if status := show("rck_nonsense", "10.0.0.3"); status != http.StatusUnauthorized || store.finds != 9 {
		t.Errorf("a malformed key: %d, %d look-ups", status, store.finds)
	}
	networks := map[int]int{}
	for n := range 100 { // 10 networks of IPv6 with 10 addresses each, and the IPv4 address that has failed too often
		forged, _, _ := access.Mint()
		networks[show(forged, fmt.Sprintf("[2001:db8:0:%x::%x]", n/10, n))]++
		if status := show(forged, "[::ffff:10.0.0.1]"); status != http.StatusTooManyRequests {
			t.Errorf("the same IPv4 address: %d", status)
		}
	}
	if networks[http.StatusUnauthorized] != 10*3 || store.finds != 9+10*(3+4) {
		t.Errorf("answers to the addresses of 10 networks: %v, %d look-ups", networks, store.finds)
	}
	var refused *Refusal
	r := httptest.NewRequest(http.MethodGet, "/api/v1/breakers", nil)
	forged, _, _ := access.Mint()
	if r.RemoteAddr = "10.0.0.1:1"; !errors.As(d.limitLookups(r, forged), &refused) || refused.Code != "too_many_failures" || refused.Headers().Get("Retry-After") == "" {
		t.Errorf("%+v", refused)
	}
}

func TestFailuresAreLimitedByWhoMakesThem(t *testing.T) {
	t.Parallel()
	f, err := newKeyedLimiter(0.001, 5)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if wait := f.take("a"); wait != 0 {
			t.Fatalf("waits %d", wait)
		}
	}
	for range 3 { // a refused failure is not counted
		if wait := f.take("a"); wait < 900 || wait > 1000 {
			t.Errorf("waits %d", wait)
		}
	}
	if wait := f.take("b"); wait != 0 {
		t.Errorf("another waits %d", wait)
	}
	for i := range 2 * limiterCacheSize {
		f.take(fmt.Sprint(i))
	}
	if n := f.limiters.(interface{ Len() int }).Len(); n > limiterCacheSize {
		t.Errorf("%d are remembered", n)
	}
}

// acquire returns the exceeded scope, and released amounts can be acquired again.
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
		t.Errorf("%d are acquired, by %v and %v", s.used, s.byTenant, s.byKey)
	}
	take("the key again", one, 2, scopeNone)
	unbounded := newQuota(6, 4, 0)
	if _, full := unbounded.acquire(one, 4); full != scopeNone {
		t.Errorf("without a limit of keys: %q", full)
	}
}

// The limits count an IPv6 network, and the log of requests has the whole address.
func TestTheLogOfRequestsHasTheWholeAddress(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.DebugLevel)
	r := httptest.NewRequest(http.MethodGet, "/api/v1/breakers", nil)
	r.RemoteAddr = "[2001:db8::7]:1"
	_, end := (&accessLog{log: zap.New(core)}).recordStatus(httptest.NewRecorder(), r)
	end()
	if lines := logged.All(); len(lines) != 1 || lines[0].ContextMap()["address"] != "2001:db8::7" {
		t.Errorf("%+v", lines)
	}
	if network := remoteNetwork(r); network != "2001:db8::/64" {
		t.Errorf("the limits count %s", network)
	}
}
