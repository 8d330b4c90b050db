package access

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestATokenHasItsFormAndNoTwoAreAlike(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		token, prefix, digest := Mint()
		got, ok := Prefix(token)
		if !ok || got != prefix || seen[token] || seen[prefix] {
			t.Fatalf("%s: %s, %v", token, got, ok)
		}
		seen[token], seen[prefix] = true, true
		k := Key{Prefix: prefix, Digest: digest}
		if err := k.Authenticate(token, time.Now()); err != nil {
			t.Errorf("its own token: %v", err)
		}
		for _, bad := range []string{token + "x", token[:len(token)-1] + "_", strings.ToUpper(token), token[1:], "", "rck_", "rck_x_y", token[:20] + "é" + token[22:]} {
			if _, ok := Prefix(bad); ok {
				t.Errorf("%q is accepted as a token", bad)
			}
			if err := k.Authenticate(bad, time.Now()); !errors.Is(err, ErrUnknown) {
				t.Errorf("%q is accepted: %v", bad, err)
			}
		}
	}
}

func TestOnlyWhoKnowsTheSecretLearnsTheStatusOfAKey(t *testing.T) {
	t.Parallel()
	token, _, digest := Mint()
	other, _, _ := Mint()
	now := time.Now()
	before, after := now.Add(-time.Second), now.Add(time.Second)
	for name, tc := range map[string]struct {
		key    Key
		want   error
		status string
	}{
		"valid":               {Key{}, nil, "valid"},
		"expires later":       {Key{ExpiresAt: &after}, nil, "valid"},
		"expires now":         {Key{ExpiresAt: &now}, ErrExpired, "expired"},
		"expired":             {Key{ExpiresAt: &before}, ErrExpired, "expired"},
		"revoked":             {Key{RevokedAt: &before}, ErrRevoked, "revoked"},
		"revoked and expired": {Key{RevokedAt: &before, ExpiresAt: &before}, ErrRevoked, "revoked"},
	} {
		tc.key.Digest = digest
		if err := tc.key.Authenticate(token, now); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err := tc.key.Authenticate(other, now); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s, another's secret: %v", name, err)
		}
		if s := tc.key.Status(now); s != tc.status {
			t.Errorf("%s: %s", name, s)
		}
	}
}

func TestRolesAreReadStrictly(t *testing.T) {
	t.Parallel()
	if got, err := ParseRoles("operator, approver"); err != nil || !slices.Equal(got, []Role{Operator, Approver}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", ",", "operator,", "Operator", "root", "auditor,auditor"} {
		if got, err := ParseRoles(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// oneKeyStore is a Store with one key.
type oneKeyStore struct {
	key   Key
	err   error
	finds int
	uses  []time.Time
}

func (m *oneKeyStore) FindKey(_ context.Context, prefix string) (Key, error) {
	m.finds++
	if m.err != nil {
		return Key{}, m.err
	}
	if prefix != m.key.Prefix {
		return Key{}, ErrUnknown
	}
	return m.key, nil
}

func (m *oneKeyStore) UseKey(_ context.Context, _ uuid.UUID, at time.Time) error {
	m.uses = append(m.uses, at)
	m.key.LastUsed = &at
	return nil
}

func newTestKeyring(t *testing.T) (token string, m *oneKeyStore, clock *time.Time, r *Keyring) {
	t.Helper()
	token, prefix, digest := Mint()
	m = &oneKeyStore{key: Key{Prefix: prefix, Digest: digest, Roles: []Role{Operator}}}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock = &now
	r, err := NewKeyring(m, func() time.Time { return *clock }, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return token, m, clock, r
}

func TestARevokedKeyIsRefusedWithinTheCacheTTL(t *testing.T) {
	t.Parallel()
	token, m, clock, r := newTestKeyring(t)
	if k, err := r.Verify(t.Context(), token); err != nil || !May(k.Roles, Fork) || r.Uncached(token) {
		t.Fatalf("%+v, %v", k, err)
	}
	at := *clock
	m.key.RevokedAt = &at
	*clock = at.Add(CacheTTL - 1)
	if _, err := r.Verify(t.Context(), token); err != nil || m.finds != 1 {
		t.Errorf("within CacheTTL: %v, %d finds", err, m.finds)
	}
	*clock = at.Add(CacheTTL)
	if _, err := r.Verify(t.Context(), token); !errors.Is(err, ErrRevoked) {
		t.Errorf("after it: %v", err)
	}
}

func TestAnExpiredKeyIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	token, m, clock, r := newTestKeyring(t)
	end := clock.Add(time.Second)
	m.key.ExpiresAt = &end
	if _, err := r.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	*clock = end
	if _, err := r.Verify(t.Context(), token); !errors.Is(err, ErrExpired) || m.finds != 1 {
		t.Errorf("%v, %d finds", err, m.finds)
	}
}

func TestAWrongSecretIsRefusedThoughTheKeyIsCached(t *testing.T) {
	t.Parallel()
	token, m, _, r := newTestKeyring(t)
	if _, err := r.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	forged := token[:len(token)-1] + map[bool]string{true: "b", false: "a"}[token[len(token)-1] == 'a']
	if _, err := r.Verify(t.Context(), forged); !errors.Is(err, ErrUnknown) || m.finds != 1 {
		t.Errorf("%v, %d finds", err, m.finds)
	}
	if _, err := r.Verify(t.Context(), "no key at all"); !errors.Is(err, ErrUnknown) || m.finds != 1 {
		t.Errorf("%v, %d finds", err, m.finds)
	}
}

// Requests with made-up secrets of an existing key, or with a revoked key, read the store as
// rarely as requests with the right token.
func TestAKeyIsLookedUpOnceInACacheTTLWhateverTokenIsShown(t *testing.T) {
	t.Parallel()
	token, m, clock, r := newTestKeyring(t)
	forged := token[:len(token)-1] + map[bool]string{true: "b", false: "a"}[token[len(token)-1] == 'a']
	if !r.Uncached(forged) || r.Uncached("no key at all") {
		t.Error("before the first look-up")
	}
	for range 100 {
		if _, err := r.Verify(t.Context(), forged); !errors.Is(err, ErrUnknown) {
			t.Fatal(err)
		}
	}
	if m.finds != 1 || len(m.uses) != 0 || r.Uncached(token) {
		t.Errorf("%d look-ups, %d uses", m.finds, len(m.uses))
	}
	if _, err := r.Verify(t.Context(), token); err != nil || len(m.uses) != 1 || m.finds != 1 {
		t.Errorf("%v, %d uses, %d look-ups", err, len(m.uses), m.finds)
	}
	at := *clock
	m.key.RevokedAt = &at
	*clock = at.Add(CacheTTL)
	for range 100 {
		if _, err := r.Verify(t.Context(), token); !errors.Is(err, ErrRevoked) {
			t.Fatal(err)
		}
	}
	if m.finds != 2 {
		t.Errorf("%d look-ups", m.finds)
	}
	gone, _, _ := Mint()
	if _, err := r.Verify(t.Context(), gone); !errors.Is(err, ErrUnknown) || !r.Uncached(gone) {
		t.Errorf("a key that is not there: %v", err)
	}
}

func TestAUseIsNotedOnceAMinute(t *testing.T) {
	t.Parallel()
	token, m, clock, r := newTestKeyring(t)
	for range 100 {
		if _, err := r.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		*clock = clock.Add(time.Second)
	}
	if len(m.uses) != 2 || m.uses[1].Sub(m.uses[0]) < useInterval {
		t.Errorf("%v", m.uses)
	}
}

func TestAStoreThatFailsAuthenticatesNobody(t *testing.T) {
	t.Parallel()
	token, m, clock, r := newTestKeyring(t)
	if _, err := r.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	m.err = errors.New("away")
	*clock = clock.Add(CacheTTL)
	if _, err := r.Verify(t.Context(), token); !errors.Is(err, m.err) {
		t.Errorf("%v", err)
	}
}
