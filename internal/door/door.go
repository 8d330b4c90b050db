package door

import (
	"context"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Door has what the HTTP doors of a process share: access keys, limits and quotas. Each of them is a Mux
// of it. It is safe for concurrent use.
type Door struct {
	service      *postadjudication.Service
	keyless      *Keyless
	test         *TestMode
	log          *zap.Logger
	keys         *access.Keyring
	keyFailures  *keyedLimiter // requests without a valid key, by address
	keyLookups   *keyedLimiter // lookups of uncached keys, by addresses that failed too often
	keyRefusals  *keyedLimiter // refusals that leave a receipt, by key
	expiringKeys expiringKeys
	access       *accessLog
	onRefusal    func(code string)

	streamQuota *quota             // open streams, long polls, exports, tests of webhooks and lookups
	batchQuota  *quota             // bytes of batches in work
	answerQuota *quota             // bytes of long answers that are being written
	reads       *tenantlimit.Limit // requests that read
	ctx         context.Context    // done after Stop
	stop        context.CancelFunc
	loops       sync.WaitGroup
}

// Config holds what a Door needs.
type Config struct {
	Service *postadjudication.Service
	Keyless *Keyless    // nil: a key is always needed
	Test    *TestMode   // nil: none
	Log     *zap.Logger // none when nil

	RequestLevel zapcore.Level     // level of the log line of each request
	OnRefusal    func(code string) // called for each request refused with 401, 403 or 429; must not block; may be nil
}

// Keyless admits requests without a key as Local, with every role. It is for loopback only.
type Keyless struct {
	Tenant string // of requests that name none; empty: a request must name one
}

// New returns a Door whose background loops run until Stop.
func New(c Config) (*Door, error) {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	d := &Door{
		service: c.Service, keyless: c.Keyless, test: c.Test, log: c.Log,
		expiringKeys: expiringKeys{byPrefix: map[string]expiringKey{}},
		streamQuota:  newQuota(maxStreams, maxTenantStreams, maxKeyStreams), batchQuota: newQuota(maxProcessBatchBytes, maxTenantBatchBytes, 0),
		answerQuota: newQuota(maxProcessAnswerBytes, maxTenantAnswerBytes, 0),
		reads:       tenantlimit.New(maxReads, maxTenantReads),
	}
	if d.onRefusal = c.OnRefusal; d.onRefusal == nil {
		d.onRefusal = func(string) {}
	}
	d.access = &accessLog{log: c.Log.Named(AccessLogger), level: c.RequestLevel, byAddress: map[string]*failureCount{}}
	var err error
	if d.keys, err = access.NewKeyring(c.Service.KeyStore(), time.Now, func(err error) { c.Log.Warn("failed to record the use of a key", zap.Error(err)) }); err != nil {
		return nil, err
	}
	if d.keyFailures, err = newKeyedLimiter(failuresPerSecond, failureBurst); err != nil {
		return nil, err
	}
	if d.keyLookups, err = newKeyedLimiter(lookupsPerSecond, lookupBurst); err != nil {
		return nil, err
	}
	if d.keyRefusals, err = newKeyedLimiter(refusalsPerSecond, refusalBurst); err != nil {
		return nil, err
	}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.loops.Go(func() { d.access.run(d.ctx) })
	return d, nil
}

// Stop ends the streams and long polls, so that the server can shut down, and waits for the
// background loops.
func (d *Door) Stop() {
	d.stop()
	d.loops.Wait()
}

// Stopping returns a context that is done after Stop. Streams and long polls end with it.
func (d *Door) Stopping() context.Context { return d.ctx }

// CountRefusal reports a refusal of access (401, 403, 429) to Config.OnRefusal. A Mux counts what
// it writes itself.
func (d *Door) CountRefusal(refused *Refusal) {
	switch refused.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		d.onRefusal(refused.Code)
	}
}
