package access

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
)

// Store is where keys are kept.
type Store interface {
	// FindKey gives the key with a prefix, of whatever tenant; ErrUnknown when there
	// is none.
	FindKey(ctx context.Context, prefix string) (Key, error)
	// UseKey notes that a key was used. It is called at most once a minute and key by
	// each process.
	UseKey(ctx context.Context, id uuid.UUID, at time.Time) error
}

const (
	// CacheTTL is how long a key is taken for what it was when it was last read. A
	// revoked key is refused everywhere at most this much later.
	CacheTTL = 2 * time.Second

	// useInterval is how often a use is noted.
	useInterval = time.Minute

	cacheSize = 4096 // keys; the ones that are not used for longest are forgotten first
)

// Keyring tells what a token opens. It is safe for concurrent use.
type Keyring struct {
	store Store
	now   func() time.Time
	warn  func(error)
	cache *lru.Cache[string, cachedKey]
}

type cachedKey struct {
	key    Key
	readAt time.Time
}

// NewKeyring makes one. warn is told when a use could not be noted; the key opens all
// the same.
func NewKeyring(store Store, now func() time.Time, warn func(error)) (*Keyring, error) {
	seen, err := lru.New[string, cachedKey](cacheSize)
	return &Keyring{store: store, now: now, warn: warn, cache: seen}, err
}

// Verify gives the key that a token opens. It is ErrUnknown, ErrExpired or ErrRevoked
// when it opens none; any other error means that the store could not be asked. For a key
// that is there the store is asked once in Memory, also when the secret is wrong.
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

// Uncached reports whether a token may be of a key that was not found here before, so that
// to verify it asks the store. Such look-ups are as many as somebody makes up prefixes.
func (r *Keyring) Uncached(token string) bool {
	prefix, ok := Prefix(token)
	return ok && !r.cache.Contains(prefix)
}

func (r *Keyring) cached(prefix string) (Key, bool) {
	s, ok := r.cache.Get(prefix)
	since := r.now().Sub(s.readAt)
	return s.key, ok && since >= 0 && since < CacheTTL
}

// recordUse notes the use of a key, unless that was done within the last minute.
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
