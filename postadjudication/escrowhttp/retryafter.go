package escrowhttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds what a service may ask for.
const maxRetryAfter = 24 * time.Hour

// retryAfter is how long the answer asks to wait: whole seconds, or until a date,
// which is measured by the service's own clock when it tells it. 0 when it does
// not ask, or not in a way that can be read.
func retryAfter(h http.Header, now time.Time) time.Duration {
	s := strings.TrimSpace(h.Get("Retry-After"))
	if s == "" {
		return 0
	}
	if strings.Trim(s, "0123456789") == "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter // digits only: the one error left is that they are too many
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
