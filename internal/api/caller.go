package api

import (
	"context"
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication"
)

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
