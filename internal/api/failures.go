package api

import (
	"math"
	"net"
	"net/http"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

const (
	// A remote address may fail to show a key this often at once, and then this often
	// a second.
	failureBurst      = 20
	failuresPerSecond = 0.5

	// An address that failed so often may still have this many keys looked up at once that
	// were not found here before, and then this many a second: whoever shares the address,
	// as behind a proxy, must not be kept out.
	lookupBurst      = 50
	lookupsPerSecond = 50

	// A key may be refused so that a receipt is left this often at once, and then this often a
	// second: by its roles, by a gate, or because a second person is required.
	refusalBurst      = 120
	refusalsPerSecond = 2

	// limiterCacheSize is how many addresses and keys are kept in mind; the ones that were
	// quiet for longest are forgotten first.
	limiterCacheSize = 8192
)

// keyedLimiter counts what goes wrong by who does it, so that guessing is slow and the
// trail is not flooded.
type keyedLimiter struct {
	perSecond rate.Limit
	burst     int
	limiters  *lru.Cache[string, *rate.Limiter]
}

func newKeyedLimiter(perSecond rate.Limit, burst int) (*keyedLimiter, error) {
	limiters, err := lru.New[string, *rate.Limiter](limiterCacheSize)
	return &keyedLimiter{perSecond, burst, limiters}, err
}

// take counts a failure. It gives the seconds to wait when there were too many, else 0.
func (f *keyedLimiter) take(who string) int {
	fresh := rate.NewLimiter(f.perSecond, f.burst)
	limiter, known, _ := f.limiters.PeekOrAdd(who, fresh)
	if !known {
		limiter = fresh
	}
	f.limiters.Get(who) // it was heard of just now
	r := limiter.Reserve()
	if wait := r.Delay(); wait > 0 {
		r.Cancel()
		return int(math.Ceil(wait.Seconds()))
	}
	return 0
}

// exhausted reports whether the next failure would be one too many.
func (f *keyedLimiter) exhausted(who string) bool {
	limiter, known := f.limiters.Get(who)
	return known && limiter.Tokens() < 1
}

// remoteAddress is where a request comes from, without its port.
func remoteAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
