package access

import (
	"strings"
	"time"
)

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
