package api

import (
	"context"
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Local is the principal of whoever asks where no key is needed.
const Local = "local"

// Caller is who asks: what the key says, or Local.
type Caller struct {
	Tenant    string
	Principal string
	Roles     []access.Role
	Key       string     // prefix of the key; empty for Local
	until     *time.Time // when the key ends; nil: never
	token     string     // to see later whether it still opens; never told
	request   string     // what is asked for, as the log names it
}

// requested names a request. The query stays out: it is the caller's.
func requested(r *http.Request) string { return r.Method + " " + r.URL.Path }

type callerKey struct{}

func withCaller(ctx context.Context, c Caller) context.Context {
	ctx = postadjudication.WithCaller(ctx, postadjudication.Caller{Key: c.Key, NoKeys: c.Key == ""})
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf is who asks; the door lets no request pass without one.
func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
