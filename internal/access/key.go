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

// Key is an access key as it is stored: everything but the secret.
type Key struct {
	ID        uuid.UUID `json:"id"`
	Prefix    string    `json:"prefix"` // identifies the key; not secret
	Digest    [32]byte  `json:"-"`      // SHA-256 of the token
	Tenant    string    `json:"tenant"`
	Principal string    `json:"principal"` // actor of everything done with the key
	Roles     []Role    `json:"roles"`
	Queues    []string  `json:"queues,omitempty"` // from which a worker fetches; empty: all that are no payment queues
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	// SuccessorOf is the prefix of the key that this one replaces; empty if it replaces none.
	SuccessorOf string     `json:"successor_of,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"` // nil: never
	RevokedAt   *time.Time `json:"revoked_at,omitempty"`
	RevokedBy   string     `json:"revoked_by,omitempty"`
	LastUsed    *time.Time `json:"last_used_at,omitempty"` // to the minute
}

// Errors of a token that gives no access.
var (
	ErrUnknown = errors.New("access: no such key")
	ErrExpired = errors.New("access: the key has expired")
	ErrRevoked = errors.New("access: the key is revoked")
)

// ErrOtherPrincipal means that somebody asked for the successor of another principal's key.
var ErrOtherPrincipal = errors.New("access: the key belongs to another principal")

const (
	tokenPrefix = "rck_"
	prefixLen   = 12
	secretLen   = 43 // 43 of 62 characters have 256 bits
	alphabet    = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Mint returns a new token, and what is stored of it. The token can't be recovered.
func Mint() (token, prefix string, digest [32]byte) {
	prefix = randomText(prefixLen)
	token = tokenPrefix + prefix + "_" + randomText(secretLen)
	return token, prefix, sha256.Sum256([]byte(token))
}

// randomText returns n random letters and digits, uniformly distributed.
func randomText(n int) string {
	const even = 256 - 256%len(alphabet) // higher bytes would favour the first characters
	out := make([]byte, 0, n)
	for buf := make([]byte, 2*n); len(out) < n; {
		_, _ = rand.Read(buf) // never fails: it crashes the process instead
		for _, b := range buf {
			if int(b) < even && len(out) < n {
				out = append(out, alphabet[int(b)%len(alphabet)])
			}
		}
	}
	return string(out)
}

// Prefix returns the part of a token that identifies its key; ok is false if text has not the
// format of a token.
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

// Authenticate returns nil if the token is valid at now. Without the right secret it always
// returns ErrUnknown, so that the status of the key stays hidden.
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

// Status returns "valid", "revoked" or "expired".
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

	// PersonLifetime is the default lifetime of a key of a person (user:...).
	PersonLifetime = 90 * day
	// ServiceLifetime is the default lifetime of any other key.
	ServiceLifetime = 400 * day
	// MaxLifetime is the longest lifetime that can be given.
	MaxLifetime = 2 * 365 * day
	// ExpiryNotice is how long before its expiry a key is announced to expire.
	ExpiryNotice = 30 * day
	// UnusedFor is how long a key may be unused before it is reported as unused.
	UnusedFor = 90 * day
)

// DefaultLifetime returns the default lifetime of a key of a principal.
func DefaultLifetime(principal string) time.Duration {
	if strings.HasPrefix(principal, "user:") {
		return PersonLifetime
	}
	return ServiceLifetime
}

// ExpiresSoon reports whether a key that expires at end is within ExpiryNotice of it. A nil
// end is never.
func ExpiresSoon(end *time.Time, now time.Time) bool {
	return end != nil && end.Sub(now) <= ExpiryNotice
}
