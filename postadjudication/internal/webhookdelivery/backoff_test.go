package webhookdelivery

import (
	"testing"
	"time"
)

func TestDelaysDoubleUpToAnHour(t *testing.T) {
	t.Parallel()
	for failures, longest := range map[int]time.Duration{-1: time.Second, 0: time.Second, 1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 12: 2048 * time.Second, 13: time.Hour, 100: time.Hour, 1 << 40: time.Hour} {
		different := false
		first := delay(failures)
		for range 200 {
			d := delay(failures)
			if d < longest/2 || d >= longest {
				t.Fatalf("after %d failures: %v, not %v to %v", failures, d, longest/2, longest)
			}
			different = different || d != first
		}
		if !different {
			t.Errorf("after %d failures there is no jitter", failures)
		}
	}
}

func TestRetryAfterIsReadInBothForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "-5": 0, "120": 2 * time.Minute, "86400": 24 * time.Hour, "86401": 24 * time.Hour, "999999999999999999": 24 * time.Hour, "99999999999999999999": 0, "1.5": 0, "soon": 0,
		"Wed, 25 Nov 2026 10:00:30 GMT": 30 * time.Second, "Wed, 25 Nov 2026 09:00:00 GMT": 0, "Fri, 25 Dec 2026 10:00:00 GMT": 24 * time.Hour,
	} {
		if got := parseRetryAfter(text, now); got != want {
			t.Errorf("%q: %v, not %v", text, got, want)
		}
	}
}
