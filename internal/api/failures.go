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
	failuresAtOnce = 20
	failuresPace   = 0.5

	// An address that failed so often may still have this many keys looked up at once that
	// were not found here before, and then this many a second: whoever shares the address,
	// as behind a proxy, must not be kept out.
	lookupsAtOnce = 50
	lookupsPace   = 50

	// A key may be refused so that a receipt is left this often at once, and then this often a
	// second: by its roles, by a gate, or because a second person is required.
	refusalsAtOnce = 120
	refusalsPace   = 2

	// counted is how many addresses and keys are kept in mind; the ones that were
	// quiet for longest are forgotten first.
	counted = 8192
)

// failures counts what goes wrong by who does it, so that guessing is slow and the
// trail is not flooded.
type failures struct {
	pace   rate.Limit
	atOnce int
	by     *lru.Cache[string, *rate.Limiter]
}

func newFailures(pace rate.Limit, atOnce int) (*failures, error) {
	by, err := lru.New[string, *rate.Limiter](counted)
	return &failures{pace, atOnce, by}, err
}

// one counts a failure. It gives the seconds to wait when there were too many, else 0.
func (f *failures) one(who string) int {
	fresh := rate.NewLimiter(f.pace, f.atOnce)
	limiter, known, _ := f.by.PeekOrAdd(who, fresh)
	if !known {
		limiter = fresh
	}
	f.by.Get(who) // it was heard of just now
	r := limiter.Reserve()
	if wait := r.Delay(); wait > 0 {
		r.Cancel()
		return int(math.Ceil(wait.Seconds()))
	}
	return 0
}

// spent reports whether the next failure would be one too many.
func (f *failures) spent(who string) bool {
	limiter, known := f.by.Get(who)
	return known && limiter.Tokens() < 1
}

// address is where a request comes from, without its port.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
