package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Key is an access key as it is kept: everything but the secret.
type Key struct {
	ID        uuid.UUID `json:"id"`
	Prefix    string    `json:"prefix"` // finds the key, and may be shown
	Digest    [32]byte  `json:"-"`      // SHA-256 of the token
	Tenant    string    `json:"tenant"`
	Principal string    `json:"principal"` // the actor of whatever is done with it
	Roles     []Role    `json:"roles"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	// SuccessorOf is the prefix of the key that this one was made to replace; empty when there is none.
	SuccessorOf string     `json:"successor_of,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"` // nil: never
	RevokedAt   *time.Time `json:"revoked_at,omitempty"`
	RevokedBy   string     `json:"revoked_by,omitempty"`
	LastUsed    *time.Time `json:"last_used_at,omitempty"` // to the minute
}

// Why a token opens nothing.
var (
	ErrUnknown = errors.New("access: no such key")
	ErrExpired = errors.New("access: the key has expired")
	ErrRevoked = errors.New("access: the key is revoked")
)

const (
	tokenPrefix = "rck_"
	prefixLen   = 12
	secretLen   = 43 // 43 of 62 signs are 256 bits
	alphabet    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Mint makes a token and what is kept of it. Nobody can make the token again.
func Mint() (token, prefix string, digest [32]byte) {
	prefix = randomText(prefixLen)
	token = tokenPrefix + prefix + "_" + randomText(secretLen)
	return token, prefix, sha256.Sum256([]byte(token))
}

// randomText is a text of letters and digits, each as likely as the other.
func randomText(n int) string {
	const even = 256 - 256%len(alphabet) // bytes from here on would favour the first signs
	out := make([]byte, 0, n)
	for buf := make([]byte, 2*n); len(out) < n; {
		_, _ = rand.Read(buf) // never fails: it ends the process instead
		for _, b := range buf {
			if int(b) < even && len(out) < n {
				out = append(out, alphabet[int(b)%len(alphabet)])
			}
		}
	}
	return string(out)
}

// Prefix is the part of a token that finds its key; ok is false when the text has not
// the form of a token.
func Prefix(token string) (prefix string, ok bool) {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || len(rest) != prefixLen+1+secretLen || rest[prefixLen] != '_' {
		return "", false
	}
	for i, c := range []byte(rest) {
		if i != prefixLen && !strings.ContainsRune(alphabet, rune(c)) {
			return "", false
		}
	}
	return rest[:prefixLen], true
}

// Authenticate judges a token at a time. Whoever does not know the secret learns nothing of
// the key: ErrUnknown.
func (k *Key) Authenticate(token string, now time.Time) error {
	digest := sha256.Sum256([]byte(token))
	switch {
	case subtle.ConstantTimeCompare(digest[:], k.Digest[:]) != 1:
		return ErrUnknown
	case k.RevokedAt != nil:
		return ErrRevoked
	case k.ExpiresAt != nil && !now.Before(*k.ExpiresAt):
		return ErrExpired
	}
	return nil
}

// Status is "valid", "revoked" or "expired".
func (k *Key) Status(now time.Time) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked"
	case k.ExpiresAt != nil && !now.Before(*k.ExpiresAt):
		return "expired"
	}
	return "valid"
}

const (
	day = 24 * time.Hour

	// PersonLifetime is how long a key of a person (user:...) opens when nothing else is said.
	PersonLifetime = 90 * day
	// ServiceLifetime is how long any other key opens when nothing else is said.
	ServiceLifetime = 400 * day
	// MaxLifetime is the most that may be said.
	MaxLifetime = 2 * 365 * day
	// ExpiryNotice is the last part of a key's life, in which whoever uses it is told its end.
	ExpiryNotice = 30 * day
	// UnusedFor is how long a key may go unused before somebody should look whether it is needed.
	UnusedFor = 90 * day
)

// DefaultLifetime returns how long a key of a principal opens when nothing else is said.
func DefaultLifetime(principal string) time.Duration {
	if strings.HasPrefix(principal, "user:") {
		return PersonLifetime
	}
	return ServiceLifetime
}

// ExpiresSoon reports whether a time at which a key ends is near. A key without an end never
// ends soon.
func ExpiresSoon(end *time.Time, now time.Time) bool {
	return end != nil && end.Sub(now) <= ExpiryNotice
}
