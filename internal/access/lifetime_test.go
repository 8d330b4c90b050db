package access_test

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
)

func TestKeysOfPeopleEndSoonerThanThoseOfServices(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for principal, want := range map[string]time.Duration{"user:ada": 90 * day, "service:desk": 400 * day, "user": 400 * day, "": 400 * day} {
		if got := access.DefaultLifetime(principal); got != want {
			t.Errorf("%q: %s", principal, got)
		}
	}
	now := time.Now()
	for left, want := range map[time.Duration]bool{30*day + 1: false, 30 * day: true, 1: true, -1: true} {
		end := now.Add(left)
		if access.ExpiresSoon(&end, now) != want {
			t.Errorf("%s before its end: %t", left, !want)
		}
	}
	if access.ExpiresSoon(nil, now) {
		t.Error("a key that never expires expires soon")
	}
}
