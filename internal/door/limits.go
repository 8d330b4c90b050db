package door

import (
	"math"
	"net/http"
	"net/netip"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

const (
	// A remote address may fail to show a valid key this often at once, and then this often a
	// second.
	failureBurst      = 20
	failuresPerSecond = 0.5

	// An address that failed too often may still look up this many uncached keys at once, and
	// then this many a second: other clients at the same address, for example behind a proxy,
	// must not be locked out.
	lookupBurst      = 50
	lookupsPerSecond = 50

	// A key may cause this many refusals that leave a receipt at once, and then this many a
	// second: by its roles, by a gate, or because a second person is required.
	refusalBurst      = 120
	refusalsPerSecond = 2

	// This many requests read at the same time, and this many of one tenant. Further ones wait. Reads
	// have ten database connections. Retention, rules and lookups take one each while they work, and one
	// is for the process itself, such as to look up keys. Of the six that are left two tenants take four.
	maxReads       = 6
	maxTenantReads = 2

	// Open streams, long polls, exports, tests of webhooks and lookups of this process at once.
	maxStreams       = 256
	maxTenantStreams = 32
	maxKeyStreams    = 8

	// Bytes of batches in work at once.
	maxProcessBatchBytes = 64 << 20
	maxTenantBatchBytes  = 16 << 20

	// limiterCacheSize is how many addresses and keys are remembered; the least recently used
	// are forgotten first.
	limiterCacheSize = 8192
)

// keyedLimiter limits failures by who causes them, so that guessing is slow and refusals do
// not flood the trail.
type keyedLimiter struct {
	perSecond rate.Limit
	burst     int
	limiters  limiterCache
}

// limiterCache has the limiters of those that failed last. It is an interface so that the packages of
// the doors do not compile the cache again.
type limiterCache interface {
	Get(who string) (limiter *rate.Limiter, ok bool)
	PeekOrAdd(who string, fresh *rate.Limiter) (known *rate.Limiter, ok, evicted bool)
}

func newKeyedLimiter(perSecond rate.Limit, burst int) (*keyedLimiter, error) {
	limiters, err := lru.New[string, *rate.Limiter](limiterCacheSize)
	return &keyedLimiter{perSecond, burst, limiters}, err
}

// take counts a failure. It returns the seconds to wait if there were too many, else 0.
func (f *keyedLimiter) take(who string) int {
	fresh := rate.NewLimiter(f.perSecond, f.burst)
	limiter, known, _ := f.limiters.PeekOrAdd(who, fresh)
	if !known {
		limiter = fresh
	}
	f.limiters.Get(who) // marks it as recently used
	r := limiter.Reserve()
	if wait := r.Delay(); wait > 0 {
		r.Cancel()
		return int(math.Ceil(wait.Seconds()))
	}
	return 0
}

// exhausted reports whether take would return more than 0.
func (f *keyedLimiter) exhausted(who string) bool {
	limiter, known := f.limiters.Get(who)
	return known && limiter.Tokens() < 1
}

// remoteNetwork returns what the limits count a request under: the IPv4 address that it comes from, or the
// /64 network of an IPv6 address, since who has one address there has all of its network.
func remoteNetwork(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip := from.Addr().Unmap().WithZone("")
	if ip.Is4() || ip.IsLoopback() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// quota shares a limit of the process among keys and tenants, so that none of them can use
// all of it.
type quota struct {
	process, tenant, key int64 // limits; key 0: no limit of a key

	mu              sync.Mutex
	used            int64
	byTenant, byKey map[string]int64
}

func newQuota(process, tenant, key int64) *quota {
	return &quota{process: process, tenant: tenant, key: key, byTenant: map[string]int64{}, byKey: map[string]int64{}}
}

// quotaScope is the limit that an acquire exceeded.
type quotaScope string

const (
	scopeNone    quotaScope = ""
	scopeKey     quotaScope = "key"
	scopeTenant  quotaScope = "tenant"
	scopeProcess quotaScope = "process"
)

// acquire takes n for a caller until release is called, which must happen once. If a limit
// would be exceeded, it takes nothing and returns the limit. A caller without a key is
// limited by tenant only.
func (s *quota) acquire(c Caller, n int64) (release func(), exceeded quotaScope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.key > 0 && c.Key != "" && s.byKey[c.Key]+n > s.key:
		return nil, scopeKey
	case s.byTenant[c.Tenant]+n > s.tenant:
		return nil, scopeTenant
	case s.used+n > s.process:
		return nil, scopeProcess
	}
	s.add(c, n)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.add(c, -n)
	}, scopeNone
}

func (s *quota) add(c Caller, n int64) {
	s.used += n
	addTo(s.byTenant, c.Tenant, n)
	addTo(s.byKey, c.Key, n)
}

// addTo adds n to an entry, and deletes the entry at 0.
func addTo(by map[string]int64, name string, n int64) {
	if by[name] += n; by[name] == 0 {
		delete(by, name)
	}
}

// AcquireStream counts a stream, a long poll, an export, the test of a webhook or a lookup until release is called.
//
//	429 too_many_streams  the key or the tenant is at its limit
//	503 too_many_streams  the process is at its limit
func (d *Door) AcquireStream(c Caller) (release func(), err error) {
	release, exceeded := d.streamQuota.acquire(c, 1)
	switch exceeded {
	case scopeNone:
		return release, nil
	case scopeKey:
		return nil, NewRefusal(http.StatusTooManyRequests, "too_many_streams", "the key has %d streams, long polls, exports, tests of webhooks and lookups open, the maximum: close one, or read without waiting", maxKeyStreams).WithRetryAfter(10)
	case scopeTenant:
		return nil, NewRefusal(http.StatusTooManyRequests, "too_many_streams", "the tenant has %d streams, long polls, exports, tests of webhooks and lookups open, the maximum: close one, or read without waiting", maxTenantStreams).WithRetryAfter(10)
	}
	return nil, NewRefusal(http.StatusServiceUnavailable, "too_many_streams", "the process has %d streams, long polls, exports, tests of webhooks and lookups open, the maximum: read without waiting", maxStreams).WithRetryAfter(10)
}

// AcquireBatch counts the bytes of a batch until release is called.
//
//	429 too_many_batches  the tenant or the process is at its limit
func (d *Door) AcquireBatch(c Caller, length int64) (release func(), err error) {
	release, exceeded := d.batchQuota.acquire(c, length)
	if exceeded != scopeNone {
		return nil, NewRefusal(http.StatusTooManyRequests, "too_many_batches", "at most %d MiB of batches of a tenant and %d MiB of a process are processed at once: submit smaller batches, or one after the other", maxTenantBatchBytes>>20, maxProcessBatchBytes>>20).WithRetryAfter(1)
	}
	return release, nil
}
