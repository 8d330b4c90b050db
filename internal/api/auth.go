package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication"
)

// TenantHeader names the tenant of a request without a key.
const TenantHeader = "Recourse-Tenant"

// authenticate returns the caller of a request. Its errors are of type *Problem; with
// tenant_mismatch it also returns the caller.
//
//	401 key_missing    no Authorization: Bearer rck_...
//	401 key_invalid    no such key
//	401 key_expired, key_revoked  only after the secret was verified
//	403 tenant_mismatch  Recourse-Tenant names another tenant than the key
//	429 too_many_failures
//	400 header_doubled
func (a *API) authenticate(r *http.Request) (Caller, error) {
	for _, name := range []string{"Authorization", TenantHeader} {
		if len(r.Header.Values(name)) > 1 {
			return Caller{}, newProblem(http.StatusBadRequest, "header_doubled", "%s is given twice", name)
		}
	}
	token := bearerToken(r)
	if token == "" && a.keyless != nil {
		return a.authenticateLocal(r)
	}
	if token == "" {
		return Caller{}, a.keyFailure(r, "key_missing", "send an access key: Authorization: Bearer rck_...; recourse keys create makes one")
	}
	if err := a.limitLookups(r, token); err != nil {
		return Caller{}, err
	}
	key, err := a.keys.Verify(r.Context(), token)
	switch {
	case errors.Is(err, access.ErrUnknown):
		return Caller{}, a.keyFailure(r, "key_invalid", "there is no such access key")
	case errors.Is(err, access.ErrExpired):
		return Caller{}, a.keyFailure(r, "key_expired", "the access key has expired")
	case errors.Is(err, access.ErrRevoked):
		return Caller{}, a.keyFailure(r, "key_revoked", "the access key was revoked")
	case err != nil:
		return Caller{}, a.problemOf(a.withCaller(r.Context(), Caller{requestName: requestName(r)}), outageNothingDone, err)
	}
	c := Caller{Tenant: key.Tenant, Principal: key.Principal, Roles: key.Roles, Key: key.Prefix, expiresAt: key.ExpiresAt, token: token}
	if named := r.Header.Get(TenantHeader); named != "" && named != key.Tenant {
		err := a.recordRefusal(r.Context(), c, postadjudication.AccessRefusal{Action: r.Method, Code: "tenant_mismatch"})
		if err == nil {
			err = newProblem(http.StatusForbidden, "tenant_mismatch", "the access key belongs to another tenant; leave %s out", TenantHeader)
		}
		return c, err
	}
	return c, nil
}

// authenticateLocal admits any process of this machine. The Host header must name loopback:
// a page in a browser of this machine, loaded under another name, is refused.
func (a *API) authenticateLocal(r *http.Request) (Caller, error) {
	if !IsLoopbackHost(r.Host) {
		return Caller{}, newProblem(http.StatusForbidden, "host_unknown", "without a key only requests to a loopback host name are answered")
	}
	tenant := r.Header.Get(TenantHeader)
	if tenant == "" {
		tenant = a.keyless.Tenant
	}
	if tenant == "" || len(tenant) > 128 {
		return Caller{}, newProblem(http.StatusBadRequest, "tenant_missing", "name the tenant: %s: NAME", TenantHeader)
	}
	return Caller{Tenant: tenant, Principal: Local, Roles: access.Roles()}, nil
}

// IsLoopbackHost reports whether a Host header names this machine.
func IsLoopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// keyFailure counts a request without a valid key and returns its *Problem.
func (a *API) keyFailure(r *http.Request, code, detail string) error {
	a.access.logFailure(r, bearerToken(r), code)
	if wait := a.keyFailures.take(remoteAddress(r)); wait > 0 {
		return tooManyFailures(wait)
	}
	return newProblem(http.StatusUnauthorized, code, "%s", detail)
}

// limitLookups limits how often an address that failed too often makes Postgres look up
// unknown keys. A key that this process has found before is always looked up, whatever
// others at its address do.
func (a *API) limitLookups(r *http.Request, token string) error {
	from := remoteAddress(r)
	if !a.keys.Uncached(token) || !a.keyFailures.exhausted(from) {
		return nil
	}
	wait := a.keyLookups.take(from)
	if wait == 0 {
		return nil
	}
	a.access.logFailure(r, token, "too_many_failures")
	return tooManyFailures(wait)
}

func tooManyFailures(wait int) *Problem {
	return newProblem(http.StatusTooManyRequests, "too_many_failures", "too many requests without a valid key came from this address").withRetryAfter(wait)
}

// bearerToken returns the token that a request shows. Browsers may send it as the password
// of any user name, for read-only pages.
func bearerToken(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	if _, password, ok := r.BasicAuth(); ok && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return password
	}
	return strings.TrimSpace(r.Header.Get("Authorization"))
}

// authorize checks the caller's roles. A refusal leaves a receipt.
func (a *API) authorize(r *http.Request, c Caller, action access.Action) error {
	if access.May(c.Roles, action) {
		return nil
	}
	refusal := postadjudication.AccessRefusal{Action: string(action), Code: "role_missing"}
	refusal.Run, refusal.Case = idsInPath(r)
	if err := a.recordRefusal(r.Context(), c, refusal); err != nil {
		return err
	}
	p := newProblem(http.StatusForbidden, "role_missing", "the roles of the access key do not allow %s", action)
	for _, role := range access.Allowed(action) {
		p.Needs = append(p.Needs, string(role))
	}
	return p
}

// recordRefusal writes the receipt of a refusal. If the key was refused too often it writes
// none and returns the *Problem of that.
func (a *API) recordRefusal(ctx context.Context, c Caller, refusal postadjudication.AccessRefusal) error {
	if wait := a.limitRefusals(c); wait > 0 {
		return tooManyRefusals(wait)
	}
	refusal.Tenant, refusal.Actor = c.Tenant, c.Principal
	if err := a.service.RecordRefusal(ctx, refusal); err != nil {
		a.log.Error("failed to write the receipt of a refusal", zap.String("key", c.Key), zap.String("action", refusal.Action), zap.Error(err))
	}
	return nil
}

// limitRefusals counts a refusal of a key. It returns the seconds to wait if there were too
// many, else 0.
func (a *API) limitRefusals(c Caller) int { return a.keyRefusals.take(c.Tenant + " " + c.Key) }

func tooManyRefusals(wait int) *Problem {
	return newProblem(http.StatusTooManyRequests, "too_many_failures", "this key was refused too often").withRetryAfter(wait)
}

// Require returns a handler that passes only the requests of callers who may do action.
func (a *API) Require(action access.Action, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w, logged := a.access.recordStatus(w, r)
		defer logged()
		c, err := a.authenticateViewer(r)
		a.recordCaller(w, c)
		if err == nil {
			err = a.authorize(r, c, action)
		}
		if err != nil {
			var p *Problem
			if errors.As(err, &p) && p.Status == http.StatusUnauthorized {
				w.Header().Add("WWW-Authenticate", `Basic realm="recourse: any name, the access key as password"`)
			}
			a.writeProblem(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(a.withCaller(r.Context(), c)))
	})
}

// authenticateViewer authenticates for pages that belong to no tenant, so that the request
// need not name one.
func (a *API) authenticateViewer(r *http.Request) (Caller, error) {
	if bearerToken(r) == "" && a.keyless != nil && IsLoopbackHost(r.Host) {
		return Caller{Principal: Local, Roles: append(access.Roles(), access.Platform)}, nil
	}
	return a.authenticate(r)
}

// Local is the principal of a caller without a key.
const Local = "local"

// Caller is the caller of a request: what the key says, or Local.
type Caller struct {
	Tenant      string
	Principal   string
	Roles       []access.Role
	Key         string     // prefix of the key; empty for Local
	expiresAt   *time.Time // nil: never
	token       string     // for later checks that the key is still valid; never shown
	requestName string     // the request's name in the log
}

// maxRequestName is how many bytes of a request's name are read. A longer name keeps at least half of that.
const maxRequestName = 2 << 10

// requestName returns the name of a request for the log, with possible secrets redacted. The
// query is left out: it may hold anything.
func requestName(r *http.Request) string {
	text := r.Method + " " + r.URL.Path
	if len(text) > maxRequestName {
		text = redact.TrimPartial(text[:maxRequestName]) + redact.CutMark
	}
	return redact.Text(text)
}

type callerKey struct{}

// withCaller returns a context that carries the caller. The refusals of a key are counted
// together, whether the API or the library refuses.
func (a *API) withCaller(ctx context.Context, c Caller) context.Context {
	known := postadjudication.Caller{Key: c.Key, NoKeys: c.Key == ""}
	if c.Key != "" {
		known.RefusalDelay = func() time.Duration { return time.Duration(a.limitRefusals(c)) * time.Second }
	}
	ctx = postadjudication.WithCaller(ctx, known)
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf returns the caller; authenticate lets no request pass without one.
func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
