package access

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
)

// KeyStore stores keys.
type KeyStore interface {
	// FindKey returns the key with a prefix, of any tenant, or ErrUnknown.
	FindKey(ctx context.Context, prefix string) (Key, error)
	// UseKey records the use of a key. Each process calls it at most once a minute for a key.
	UseKey(ctx context.Context, id uuid.UUID, at time.Time) error
}

const (
	// CacheTTL is how long a found key is cached. A revoked key is refused everywhere at most
	// this much later.
	CacheTTL = 2 * time.Second

	// useInterval is how often the use of a key is recorded.
	useInterval = time.Minute

	cacheSize = 4096 // keys; the least recently used are dropped first
)

// Keyring verifies tokens. It is safe for concurrent use.
type Keyring struct {
	store KeyStore
	now   func() time.Time
	warn  func(error)
	cache keyCache
}

// keyCache has the keys that were read last, by prefix. It is an interface so that packages with a
// Keyring do not compile the cache again.
type keyCache interface {
	Get(prefix string) (key cachedKey, ok bool)
	Contains(prefix string) bool
	Add(prefix string, key cachedKey) (evicted bool)
	Remove(prefix string) (present bool)
}

type cachedKey struct {
	key    Key
	readAt time.Time
}

// NewKeyring returns a Keyring. It calls warn if a use could not be recorded; the key
// stays valid.
func NewKeyring(store KeyStore, now func() time.Time, warn func(error)) (*Keyring, error) {
	seen, err := lru.New[string, cachedKey](cacheSize)
	return &Keyring{store: store, now: now, warn: warn, cache: seen}, err
}

// Verify returns the key of a token. Errors:
//   - ErrUnknown, ErrExpired, ErrRevoked: the token is not valid
//   - any other error: the store could not be read
//
// An existing key is read from the store once in CacheTTL, also if the secret is wrong.
func (r *Keyring) Verify(ctx context.Context, token string) (Key, error) {
	prefix, ok := Prefix(token)
	if !ok {
		return Key{}, ErrUnknown
	}
	found, fresh := r.cached(prefix)
	if !fresh {
		asked := r.now()
		var err error
		if found, err = r.store.FindKey(ctx, prefix); err != nil {
			if errors.Is(err, ErrUnknown) {
				r.cache.Remove(prefix)
			}
			return Key{}, err
		}
		r.cache.Add(prefix, cachedKey{found, asked})
	}
	now := r.now()
	if err := found.Authenticate(token, now); err != nil {
		return Key{}, err
	}
	r.recordUse(ctx, prefix, found, now)
	return found, nil
}

// Uncached reports whether no key of the token is cached, not even one older than CacheTTL. Verify
// then reads the store. An attacker can cause any number of such reads with made-up prefixes.
func (r *Keyring) Uncached(token string) bool {
	prefix, ok := Prefix(token)
	return ok && !r.cache.Contains(prefix)
}

func (r *Keyring) cached(prefix string) (Key, bool) {
	s, ok := r.cache.Get(prefix)
	since := r.now().Sub(s.readAt)
	return s.key, ok && since >= 0 && since < CacheTTL
}

// recordUse records the use of a key, at most once in useInterval.
func (r *Keyring) recordUse(ctx context.Context, prefix string, k Key, now time.Time) {
	if k.LastUsed != nil && now.Sub(*k.LastUsed) < useInterval {
		return
	}
	if err := r.store.UseKey(ctx, k.ID, now); err != nil {
		r.warn(err)
	}
	if s, ok := r.cache.Get(prefix); ok {
		s.key.LastUsed = &now
		r.cache.Add(prefix, s)
	}
}
