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

// TenantHeader names the tenant where no key does.
const TenantHeader = "Recourse-Tenant"

// authenticate tells who asks. It is a *Problem for whoever may not; the caller is told with it
// when a key opened.
//
//	401 key_missing    no Authorization: Bearer rck_...
//	401 key_invalid    no key opens with it
//	401 key_expired    only told to who knows the secret, as key_revoked is
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
		return Caller{}, a.keyFailure(r, "key_missing", "show an access key: Authorization: Bearer rck_...; one is made by recourse keys create")
	}
	if err := a.limitLookups(r, token); err != nil {
		return Caller{}, err
	}
	key, err := a.keys.Verify(r.Context(), token)
	switch {
	case errors.Is(err, access.ErrUnknown):
		return Caller{}, a.keyFailure(r, "key_invalid", "no access key opens with this")
	case errors.Is(err, access.ErrExpired):
		return Caller{}, a.keyFailure(r, "key_expired", "the access key has expired")
	case errors.Is(err, access.ErrRevoked):
		return Caller{}, a.keyFailure(r, "key_revoked", "the access key was revoked")
	case err != nil:
		return Caller{}, a.problemOf(a.withCaller(r.Context(), Caller{requestName: requestName(r)}), outageNothingDone, err)
	}
	c := Caller{Tenant: key.Tenant, Principal: key.Principal, Roles: key.Roles, Key: key.Prefix, expiresAt: key.ExpiresAt, token: token}
	if named := r.Header.Get(TenantHeader); named != "" && named != key.Tenant {
		err := a.recordRefusal(r.Context(), c, postadjudication.AccessRefusal{Action: r.Method, Rule: "tenant_mismatch"})
		if err == nil {
			err = newProblem(http.StatusForbidden, "tenant_mismatch", "the access key is of another tenant; leave %s out", TenantHeader)
		}
		return c, err
	}
	return c, nil
}

// authenticateLocal admits whoever is on this machine. A page in a browser of this machine is not
// meant by that: the name that it was asked for must be the machine's own.
func (a *API) authenticateLocal(r *http.Request) (Caller, error) {
	if !IsLoopbackHost(r.Host) {
		return Caller{}, newProblem(http.StatusForbidden, "host_unknown", "without a key this is answered under the names of loopback only")
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

// IsLoopbackHost reports whether a Host header names this machine itself.
func IsLoopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// keyFailure counts the failure of whoever shows no good key.
func (a *API) keyFailure(r *http.Request, code, detail string) error {
	a.access.logFailure(r, bearerToken(r), code)
	if wait := a.keyFailures.take(remoteAddress(r)); wait > 0 {
		return tooManyFailures(wait)
	}
	return newProblem(http.StatusUnauthorized, code, "%s", detail)
}

// limitLookups refuses what would have Postgres asked for one more key that is not there. A key
// that was found here before is looked up whatever others at its address do.
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
	return newProblem(http.StatusTooManyRequests, "too_many_failures", "too many requests without a good key came from here").withRetryAfter(wait)
}

// bearerToken is the token that a request shows. Browsers, which only look, may show it as
// the password of any name.
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

// authorize asks the table, and leaves a receipt when it refuses.
func (a *API) authorize(r *http.Request, c Caller, action access.Action) error {
	if access.May(c.Roles, action) {
		return nil
	}
	refusal := postadjudication.AccessRefusal{Action: string(action), Rule: "role_missing"}
	refusal.Run, refusal.Case = idsInPath(r)
	if err := a.recordRefusal(r.Context(), c, refusal); err != nil {
		return err
	}
	p := newProblem(http.StatusForbidden, "role_missing", "the access key does not open this: %s", action)
	for _, role := range access.Allowed(action) {
		p.Needs = append(p.Needs, string(role))
	}
	return p
}

// recordRefusal leaves the receipt of a refusal. It is a *Problem when there were too many: then
// that is the refusal, and leaves none.
func (a *API) recordRefusal(ctx context.Context, c Caller, refusal postadjudication.AccessRefusal) error {
	if wait := a.limitRefusals(c); wait > 0 {
		return tooManyRefusals(wait)
	}
	refusal.Tenant, refusal.Actor = c.Tenant, c.Principal
	if err := a.service.RecordRefusal(ctx, refusal); err != nil {
		a.log.Error("a refusal could not be told in a receipt", zap.String("key", c.Key), zap.String("action", refusal.Action), zap.Error(err))
	}
	return nil
}

// limitRefusals counts a refusal of a key. It gives the seconds to wait when there were too many.
func (a *API) limitRefusals(c Caller) int { return a.keyRefusals.take(c.Tenant + " " + c.Key) }

func tooManyRefusals(wait int) *Problem {
	return newProblem(http.StatusTooManyRequests, "too_many_failures", "this key was refused too often").withRetryAfter(wait)
}

// Guard lets only those pass to a handler who may do an action.
func (a *API) Guard(action access.Action, next http.Handler) http.Handler {
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

// authenticateViewer admits to what belongs to no tenant, so that none need be named.
func (a *API) authenticateViewer(r *http.Request) (Caller, error) {
	if bearerToken(r) == "" && a.keyless != nil && IsLoopbackHost(r.Host) {
		return Caller{Principal: Local, Roles: append(access.Roles(), access.Platform)}, nil
	}
	return a.authenticate(r)
}

// Local is the principal of whoever asks where no key is needed.
const Local = "local"

// Caller is who asks: what the key says, or Local.
type Caller struct {
	Tenant      string
	Principal   string
	Roles       []access.Role
	Key         string     // prefix of the key; empty for Local
	expiresAt   *time.Time // when the key ends; nil: never
	token       string     // to see later whether it still opens; never told
	requestName string     // what is asked for, as the log names it
}

// maxRequestName is how much of the name of a request is read, in bytes. A longer name keeps at least half of that.
const maxRequestName = 2 << 10

// requestName names a request as the log may: what looks like a secret is redacted. The query stays out: it is the
// caller's.
func requestName(r *http.Request) string {
	text := r.Method + " " + r.URL.Path
	if len(text) > maxRequestName {
		text = redact.TrimPartial(text[:maxRequestName]) + redact.CutMark
	}
	return redact.Text(text)
}

type callerKey struct{}

// withCaller gives a context that carries who asks. The refusals of a key are counted
// together, whether the API or the library refuses.
func (a *API) withCaller(ctx context.Context, c Caller) context.Context {
	known := postadjudication.Caller{Key: c.Key, NoKeys: c.Key == ""}
	if c.Key != "" {
		known.RefusalDelay = func() time.Duration { return time.Duration(a.limitRefusals(c)) * time.Second }
	}
	ctx = postadjudication.WithCaller(ctx, known)
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf is who asks; the door lets no request pass without one.
func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
