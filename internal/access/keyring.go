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
	// Memory is how long a key is taken for what it was when it was last read. A
	// revoked key is refused everywhere at most this much later.
	Memory = 2 * time.Second

	// usedEvery is how often a use is noted.
	usedEvery = time.Minute

	remembered = 4096 // keys; the ones that are not used for longest are forgotten first
)

// Keyring tells what a token opens. It is safe for concurrent use.
type Keyring struct {
	store Store
	now   func() time.Time
	warn  func(error)
	seen  *lru.Cache[string, sighting]
}

type sighting struct {
	key Key
	at  time.Time
}

// NewKeyring makes one. warn is told when a use could not be noted; the key opens all
// the same.
func NewKeyring(store Store, now func() time.Time, warn func(error)) (*Keyring, error) {
	seen, err := lru.New[string, sighting](remembered)
	return &Keyring{store: store, now: now, warn: warn, seen: seen}, err
}

// Verify gives the key that a token opens. It is ErrUnknown, ErrExpired or ErrRevoked
// when it opens none; any other error means that the store could not be asked.
func (r *Keyring) Verify(ctx context.Context, token string) (Key, error) {
	prefix, ok := Prefix(token)
	if !ok {
		return Key{}, ErrUnknown
	}
	found, fresh := r.remembered(prefix)
	if !fresh {
		var err error
		if found, err = r.store.FindKey(ctx, prefix); err != nil {
			if errors.Is(err, ErrUnknown) {
				r.seen.Remove(prefix)
			}
			return Key{}, err
		}
	}
	now := r.now()
	if err := found.Opens(token, now); err != nil {
		return Key{}, err
	}
	if !fresh {
		found = r.used(ctx, found, now)
		r.seen.Add(prefix, sighting{found, now})
	}
	return found, nil
}

// Knows reports whether a token has the prefix of a key that opened lately, so that
// to verify it costs nothing.
func (r *Keyring) Knows(token string) bool {
	prefix, ok := Prefix(token)
	if ok {
		_, ok = r.remembered(prefix)
	}
	return ok
}

func (r *Keyring) remembered(prefix string) (Key, bool) {
	s, ok := r.seen.Get(prefix)
	since := r.now().Sub(s.at)
	return s.key, ok && since >= 0 && since < Memory
}

// used notes the use of a key, unless that was done within the last minute.
func (r *Keyring) used(ctx context.Context, k Key, now time.Time) Key {
	if k.LastUsed != nil && now.Sub(*k.LastUsed) < usedEvery {
		return k
	}
	if err := r.store.UseKey(ctx, k.ID, now); err != nil {
		r.warn(err)
	}
	return k
}
