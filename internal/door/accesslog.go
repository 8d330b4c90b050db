package door

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/internal/access"
)

// AccessLogger is the name of the logger of access. Its lines are not sampled.
const AccessLogger = "access"

const (
	// failureLogInterval is how often the failures of an address are logged, after the first.
	failureLogInterval = time.Minute
	// maxFailingAddresses bounds the addresses that are counted singly; the rest are counted together.
	maxFailingAddresses = 1024
	otherAddresses      = "others"
)

// accessLog logs requests without a valid key, and every request at level. It is
// safe for concurrent use.
type accessLog struct {
	log       *zap.Logger
	level     zapcore.Level // level of the line of each request
	mu        sync.Mutex
	byAddress map[string]*failureCount
}

type failureCount struct{ sinceLogged, total int } // since the last line, and in all

// logFailure logs the first failure of an address and counts the others.
func (l *accessLog) logFailure(r *http.Request, token, code string) {
	from, first := l.countFailure(remoteNetwork(r))
	if !first {
		return
	}
	prefix, _ := access.Prefix(token)
	l.log.Warn("first request without a valid key from this address",
		zap.String("address", from), zap.String("code", code), zap.String("request", requestName(r)), zap.String("key", prefix))
}

// countFailure counts a failure of an address. It returns the address that it is counted under,
// and whether this is its first.
func (l *accessLog) countFailure(from string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, known := l.byAddress[from]
	if !known && len(l.byAddress) >= maxFailingAddresses {
		from = otherAddresses
		f, known = l.byAddress[from]
	}
	if known {
		f.sinceLogged++
		f.total++
		return from, false
	}
	l.byAddress[from] = &failureCount{total: 1}
	return from, true
}

// logCounts logs the failures of each address since the last call, and forgets addresses
// without any.
func (l *accessLog) logCounts() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for from, f := range l.byAddress {
		if f.sinceLogged == 0 {
			delete(l.byAddress, from)
			continue
		}
		l.log.Warn("more requests without a valid key", zap.String("address", from), zap.Int("count", f.sinceLogged), zap.Int("total", f.total))
		f.sinceLogged = 0
	}
}

// run calls logCounts regularly until ctx ends, and once after that.
func (l *accessLog) run(ctx context.Context) {
	tick := time.NewTicker(failureLogInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.logCounts()
		case <-ctx.Done():
			l.logCounts()
			return
		}
	}
}

// recordStatus returns a writer that records the status of the answer, and a function that
// logs the request. Where such lines are not logged it returns w itself.
func (l *accessLog) recordStatus(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func()) {
	if !l.log.Core().Enabled(l.level) {
		return w, func() {}
	}
	begun, rec := time.Now(), &statusRecorder{ResponseWriter: w}
	return rec, func() {
		l.log.Log(l.level, "request", zap.String("request", requestName(r)), zap.Int("status", rec.status), zap.String("address", remoteAddress(r)),
			zap.String("tenant", rec.caller.Tenant), zap.String("principal", rec.caller.Principal), zap.String("key", rec.caller.Key), zap.Duration("took", time.Since(begun)))
	}
}

// statusRecorder records the status of an answer, and its caller.
type statusRecorder struct {
	http.ResponseWriter
	status int // 0: no answer
	caller Caller
}

// Unwrap is for http.ResponseController.
func (w *statusRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader ignores a second status: a handler may fail after its first byte, and the
// status can't change then.
func (w *statusRecorder) WriteHeader(status int) {
	if w.status >= http.StatusOK {
		return
	}
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusRecorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// recordCaller records the caller for the log of requests, and announces the expiry of its key.
func (d *Door) recordCaller(w http.ResponseWriter, c Caller) {
	if rec, is := w.(*statusRecorder); is {
		rec.caller = c
	}
	d.announceExpiry(w, c)
}

// remoteAddress returns the address that a request comes from, without its port.
func remoteAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
