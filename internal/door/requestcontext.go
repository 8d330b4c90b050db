package door

import (
	"context"
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication"
)

// request is what the context of a request carries.
type request struct {
	caller Caller
	name   string // in the log
	outage Outage // what is known after an outage
}

type requestKey struct{}

// withCaller returns the request with its caller in the context. A caller that may not list its tenant, such as a
// submitter, reads only what its own principal submitted. One that may not cancel replaces only jobs that its own
// principal enqueued. The refusals of a key are counted together, whether a door or the library refuses.
func (d *Door) withCaller(r *http.Request, c Caller) *http.Request {
	known := postadjudication.Caller{Key: c.Key, NoKeys: c.Key == ""}
	if !access.May(c.Roles, access.List) {
		known.ReadsOnlyOf = c.Principal
	}
	if !access.May(c.Roles, access.Cancel) {
		known.ReplacesOnlyOf = c.Principal
	}
	if c.Key != "" {
		known.RefusalDelay = func() time.Duration { return time.Duration(d.limitRefusals(c)) * time.Second }
	}
	ctx := postadjudication.WithCaller(r.Context(), known)
	return r.WithContext(context.WithValue(ctx, requestKey{}, &request{c, requestName(r), OutageNothingDone}))
}

// requestOf returns what the context carries; an empty request if it carries none.
func requestOf(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{outage: OutageNothingDone}
}

// CallerOf returns the caller of a request that a Mux routed.
func CallerOf(ctx context.Context) Caller { return requestOf(ctx).caller }

// maxRequestName bounds the name of a request in the log, in bytes. A longer name is cut there, and its last
// word is left out, which could be a part of a secret.
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
