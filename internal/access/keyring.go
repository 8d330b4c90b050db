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
// when it opens none; any other error means that the store could not be asked. For a key
// that is there the store is asked once in Memory, also when the secret is wrong.
func (r *Keyring) Verify(ctx context.Context, token string) (Key, error) {
	prefix, ok := Prefix(token)
	if !ok {
		return Key{}, ErrUnknown
	}
	found, fresh := r.remembered(prefix)
	if !fresh {
		asked := r.now()
		var err error
		if found, err = r.store.FindKey(ctx, prefix); err != nil {
			if errors.Is(err, ErrUnknown) {
				r.seen.Remove(prefix)
			}
			return Key{}, err
		}
		r.seen.Add(prefix, sighting{found, asked})
	}
	now := r.now()
	if err := found.Opens(token, now); err != nil {
		return Key{}, err
	}
	r.used(ctx, prefix, found, now)
	return found, nil
}

// Unseen reports whether a token may be of a key that was not found here before, so that
// to verify it asks the store. Such look-ups are as many as somebody makes up prefixes.
func (r *Keyring) Unseen(token string) bool {
	prefix, ok := Prefix(token)
	return ok && !r.seen.Contains(prefix)
}

func (r *Keyring) remembered(prefix string) (Key, bool) {
	s, ok := r.seen.Get(prefix)
	since := r.now().Sub(s.at)
	return s.key, ok && since >= 0 && since < Memory
}

// used notes the use of a key, unless that was done within the last minute.
func (r *Keyring) used(ctx context.Context, prefix string, k Key, now time.Time) {
	if k.LastUsed != nil && now.Sub(*k.LastUsed) < usedEvery {
		return
	}
	if err := r.store.UseKey(ctx, k.ID, now); err != nil {
		r.warn(err)
	}
	if s, ok := r.seen.Get(prefix); ok {
		s.key.LastUsed = &now
		r.seen.Add(prefix, s)
	}
}
