package door

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// TenantHeader names the tenant of a request without a key.
const TenantHeader = "Recourse-Tenant"

// authenticate returns the caller of a request. Its errors are of type *Refusal, or those of the
// store of keys; with tenant_mismatch it also returns the caller.
//
//	400 header_doubled   Authorization or Recourse-Tenant is given twice
//	400 tenant_missing   without keys: no tenant is named
//	400 tenant_invalid   without keys: the tenant is no text, or over 128 bytes
//	401 key_missing      no Authorization: Bearer rck_...
//	401 key_invalid      no such key
//	401 key_expired, key_revoked  only after the secret was verified
//	403 host_unknown     without keys: the host is not loopback
//	403 tenant_mismatch  Recourse-Tenant names another tenant than the key
//	429 too_many_failures
func (d *Door) authenticate(r *http.Request) (Caller, error) {
	for _, name := range []string{"Authorization", TenantHeader} {
		if len(r.Header.Values(name)) > 1 {
			return Caller{}, NewRefusal(http.StatusBadRequest, "header_doubled", "%s is given twice", name)
		}
	}
	token := bearerToken(r)
	if token == "" && d.keyless != nil {
		return d.authenticateLocal(r)
	}
	if token == "" {
		return Caller{}, d.keyFailure(r, "key_missing", "send an access key in the header Authorization, after the word Bearer and a blank; recourse keys create makes one")
	}
	if err := d.limitLookups(r, token); err != nil {
		return Caller{}, err
	}
	key, err := d.keys.Verify(r.Context(), token)
	switch {
	case errors.Is(err, access.ErrUnknown):
		return Caller{}, d.keyFailure(r, "key_invalid", "there is no such access key")
	case errors.Is(err, access.ErrExpired):
		return Caller{}, d.keyFailure(r, "key_expired", "the access key has expired")
	case errors.Is(err, access.ErrRevoked):
		return Caller{}, d.keyFailure(r, "key_revoked", "the access key was revoked")
	case err != nil:
		return Caller{}, err
	}
	c := Caller{Tenant: d.test.Tenant(key.Tenant), Principal: key.Principal, Roles: key.Roles, Queues: key.Queues, Key: key.Prefix, ExpiresAt: key.ExpiresAt, token: token}
	if named := r.Header.Get(TenantHeader); named != "" && named != key.Tenant {
		err := d.RecordRefusal(r.Context(), c, postadjudication.AccessRefusal{Action: r.Method, Code: "tenant_mismatch"}) // the route is not known yet
		if err == nil {
			err = NewRefusal(http.StatusForbidden, "tenant_mismatch", "the access key belongs to another tenant; leave %s out", TenantHeader)
		}
		return c, err
	}
	return c, nil
}

// authenticateLocal admits any process of this machine. The Host header must name loopback:
// a page in a browser of this machine, loaded under another name, is refused.
func (d *Door) authenticateLocal(r *http.Request) (Caller, error) {
	if !IsLoopbackHost(r.Host) {
		return Caller{}, NewRefusal(http.StatusForbidden, "host_unknown", "without a key only requests to a loopback host name are answered")
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" { // it can read nothing, but could hold the limits of reads and streams
		return Caller{}, NewRefusal(http.StatusForbidden, "cross_origin", "without a key a page of another site is not answered")
	}
	tenant := r.Header.Get(TenantHeader)
	if tenant == "" {
		tenant = d.keyless.Tenant
	}
	if !utf8.ValidString(tenant) || strings.ContainsFunc(tenant, unicode.IsControl) || len(tenant) > 128 {
		return Caller{}, NewRefusal(http.StatusBadRequest, "tenant_invalid", "%s must be at most 128 bytes of text", TenantHeader)
	}
	if tenant == "" {
		return Caller{}, NewRefusal(http.StatusBadRequest, "tenant_missing", "name the tenant: %s: NAME", TenantHeader)
	}
	return Caller{Tenant: d.test.Tenant(tenant), Principal: Local, Roles: append(access.Roles(), access.Platform)}, nil
}

// IsLoopbackHost reports whether a host, with or without a port, is this machine.
func IsLoopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// LoopbackOnly refuses requests without a loopback name in the Host header. This stops DNS
// rebinding: a web page whose name resolves to loopback sends its own name.
func LoopbackOnly(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsLoopbackHost(r.Host) {
			http.Error(w, "without keys this page is served only under a loopback name", http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// keyFailure counts a request without a valid key and returns its *Refusal.
func (d *Door) keyFailure(r *http.Request, code, detail string) error {
	d.access.logFailure(r, bearerToken(r), code)
	if wait := d.keyFailures.take(remoteNetwork(r)); wait > 0 {
		return tooManyFailures(wait)
	}
	return NewRefusal(http.StatusUnauthorized, code, "%s", detail)
}

// limitLookups limits how often an address that failed too often makes Postgres look up
// unknown keys. A key that this process has found before is always looked up, whatever
// others at its address do.
func (d *Door) limitLookups(r *http.Request, token string) error {
	from := remoteNetwork(r)
	if !d.keys.Uncached(token) || !d.keyFailures.exhausted(from) {
		return nil
	}
	wait := d.keyLookups.take(from)
	if wait == 0 {
		return nil
	}
	d.access.logFailure(r, token, "too_many_failures")
	return tooManyFailures(wait)
}

func tooManyFailures(wait int) *Refusal {
	return NewRefusal(http.StatusTooManyRequests, "too_many_failures", "too many requests without a valid key came from this address").WithRetryAfter(wait)
}

// bearerToken returns the token in the Authorization header: behind Bearer or, of a GET or a HEAD, the
// password of any user name, since browsers send one for pages. Any other header is returned as a whole,
// so that it is refused as an unknown key.
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
func (d *Door) authorize(r *http.Request, c Caller, action access.Action) error {
	if access.May(c.Roles, action) {
		return nil
	}
	refusal := postadjudication.AccessRefusal{Action: string(action), Code: "role_missing"}
	refusal.Run, refusal.Case = idsInPath(r)
	if err := d.RecordRefusal(r.Context(), c, refusal); err != nil {
		return err
	}
	refused := NewRefusal(http.StatusForbidden, "role_missing", "the roles of the access key do not allow %s", action)
	refused.Needs = access.Allowed(action)
	return refused
}

// idsInPath returns the run or the case in a path.
func idsInPath(r *http.Request) (run background.RunID, caseID background.CaseID) {
	if id, err := receipts.ParseRunID(r.PathValue("run")); err == nil {
		run = id
	}
	if id, err := receipts.ParseCaseID(r.PathValue("case")); err == nil {
		caseID = id
	}
	return run, caseID
}

// RecordRefusal writes the receipt of a refusal. If the key was refused too often it writes
// none and returns the *Refusal of that.
func (d *Door) RecordRefusal(ctx context.Context, c Caller, refusal postadjudication.AccessRefusal) error {
	if wait := d.limitRefusals(c); wait > 0 {
		return tooManyRefusals(wait)
	}
	refusal.Tenant, refusal.Actor = c.Tenant, c.Principal
	if err := d.service.RecordRefusal(ctx, refusal); err != nil {
		d.log.Error("failed to write the receipt of a refusal", zap.String("key", c.Key), zap.String("action", refusal.Action), zap.Error(err))
	}
	return nil
}

// limitRefusals counts a refusal of a key. It returns the seconds to wait if there were too
// many, else 0.
func (d *Door) limitRefusals(c Caller) int { return d.keyRefusals.take(c.Tenant + " " + c.Key) }

func tooManyRefusals(wait int) *Refusal {
	return NewRefusal(http.StatusTooManyRequests, "too_many_failures", "this key was refused too often").WithRetryAfter(wait)
}

// Require returns a handler that passes only the requests of callers who may do action. Browsers
// are told that they may send the key as a password.
func (m *Mux) Require(action access.Action, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w, logged := m.door.access.recordStatus(w, r)
		defer logged()
		c, err := m.door.authenticateViewer(r)
		m.door.recordCaller(w, c)
		if err == nil {
			err = m.door.authorize(r, c, action)
		}
		r = m.door.withCaller(r, c)
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		refused := m.door.RefusalOf(r.Context(), err)
		if refused.Status == http.StatusUnauthorized {
			w.Header().Add("WWW-Authenticate", `Basic realm="recourse: any name, the access key as password"`)
		}
		m.Refuse(w, r, refused)
	})
}

// authenticateViewer authenticates for pages that belong to no tenant, so that the request
// need not name one.
func (d *Door) authenticateViewer(r *http.Request) (Caller, error) {
	if bearerToken(r) == "" && d.keyless != nil && IsLoopbackHost(r.Host) {
		return Caller{Principal: Local, Roles: append(access.Roles(), access.Platform)}, nil
	}
	return d.authenticate(r)
}

// Local is the principal of a caller without a key.
const Local = "local"

// Caller is the caller of a request: what the key says, or Local.
type Caller struct {
	Tenant    string
	Principal string
	Roles     []access.Role
	Queues    []string   // from which a worker fetches; see access.Key
	Key       string     // prefix of the key; empty for Local
	ExpiresAt *time.Time // of the key; nil: never
	token     string     // for later checks that the key is still valid; never shown
}

// MayFetch reports whether the caller may fetch from a queue. A caller that needs no key may.
func (c *Caller) MayFetch(queue string, pays bool) bool {
	key := access.Key{Roles: c.Roles, Queues: c.Queues}
	return c.Key == "" || key.MayFetch(queue, pays)
}

// CheckKey returns an error if the caller's key has ended since it was shown. Answers that take
// long call it again and again.
func (d *Door) CheckKey(ctx context.Context, c Caller) error {
	if c.token == "" {
		return nil
	}
	_, err := d.keys.Verify(ctx, c.token)
	return endedKey(err)
}

// CheckKeyOf is CheckKey for a request that has waited before it does anything, for its body or for its turn.
func (d *Door) CheckKeyOf(ctx context.Context) error {
	if err := d.CheckKey(ctx, CallerOf(ctx)); err != nil {
		return d.refusalOf(ctx, OutageNothingDone, err)
	}
	return nil
}
