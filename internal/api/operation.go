package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
)

// operation describes an operation of the API.
type operation struct {
	id, method, path, summary, description string
	action                                 access.Action
	status                                 int    // on success; 0: 200
	maxBody                                int64  // in bytes; 0: door.DefaultMaxBody
	repeatable                             bool   // safe to repeat without an Idempotency-Key
	secret                                 string // member of its answer that must not be stored
	raw                                    bool   // package intake checks its body, not the description's schema
	itemized                               bool   // reads its body itself, item by item: see batchItems
	plannable                              bool   // may answer 202 with a plan that another person has to run
	reads                                  bool   // it changes nothing, though it is no GET: it takes a slot of the reads
	waits                                  bool   // a read that may wait for long: it takes a slot of the reads itself, only while it reads
}

const (
	maxItemBytes  = 64 << 10
	maxBatchBytes = 16 << 20
)

// outageOfSubmit is what is known after an outage during a submission.
var outageOfSubmit = door.Outage{Done: door.DoneUnknown, Detail: "it is not known whether anything was accepted. Submitting the same again is safe: an accepted adjudication is answered as accepted, and nothing is executed twice"}

// route returns how the door reads the requests of the operation.
func (o operation) route() door.Route {
	route := door.Route{Action: o.action, MaxBody: o.maxBody, CheckBody: rejectNulls, ReadsBody: o.itemized, Repeatable: o.repeatable, Secret: o.secret}
	if o.raw {
		route.CheckBody = nil
	}
	if o.action == access.Submit {
		route.Outage = outageOfSubmit
	}
	return route
}

// batchReadTimeout is how long a batch may take to arrive, as long as its answer may take.
const batchReadTimeout = 30 * time.Second

// bodyReadTimeout returns how long the body may still take to arrive. The door has read the bodies of
// all operations but batches: a deadline would end these requests while they work.
func (o operation) bodyReadTimeout() time.Duration {
	if o.itemized {
		return batchReadTimeout
	}
	return -1
}

// register adds an operation. Its errors are answered as problems.
func register[I, O any](a *API, h huma.API, o operation, do func(context.Context, door.Caller, *I) (*O, error)) {
	op := huma.Operation{
		OperationID: o.id, Method: o.method, Path: Prefix + o.path, Summary: o.summary, Description: o.description, DefaultStatus: o.status,
		MaxBodyBytes:     -1, // the door limits it
		BodyReadTimeout:  o.bodyReadTimeout(),
		SkipValidateBody: o.raw,
		Metadata:         map[string]any{"operation": o},
		Extensions:       map[string]any{"x-action": o.action, "x-roles": access.Allowed(o.action)},
	}
	if !o.repeatable && o.method != http.MethodGet {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "Idempotency-Key", In: "header", Description: "Makes the request safe to repeat for 24 hours; in quotes as a string of RFC 9651, or the same without quotes",
			Schema: &huma.Schema{Type: "string", MaxLength: pointer(255)},
		})
	}
	op.Responses = o.problems(h.OpenAPI().Components.Schemas)
	huma.Register(h, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := limited(ctx, a.door, o, in, do)
		if err == nil {
			return out, nil
		}
		refused := a.door.RefusalOf(ctx, err)
		a.door.CountRefusal(refused)
		return out, problemOf(refused)
	})
}

// problems returns the problems that the operation answers with.
func (o operation) problems(schemas huma.Registry) map[string]*huma.Response {
	problem := schemas.Schema(reflect.TypeFor[Problem](), true, "")
	content := func(codes []string) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{problemType: {Schema: problemWithCodes(problem, codes)}}
	}
	out := map[string]*huma.Response{"default": {Description: "Problem", Content: content(o.codes())}}
	if o.plannable {
		out["202"] = &huma.Response{Description: secondPersonRequired + ": it is planned, and another person has to run it", Content: content([]string{secondPersonRequired})}
	}
	return out
}

// limited runs an operation. A read waits for a slot of its tenant's reads. It holds the slot
// while it reads, and not while its answer is written.
func limited[I, O any](ctx context.Context, d *door.Door, o operation, in *I, do func(context.Context, door.Caller, *I) (*O, error)) (out *O, err error) {
	c := door.CallerOf(ctx)
	if o.method != http.MethodGet && !o.reads || o.waits {
		return do(ctx, c, in)
	}
	if waitErr := d.Read(ctx, c.Tenant, func() { out, err = do(ctx, c, in) }); waitErr != nil {
		return nil, waitErr
	}
	return out, err
}

func pointer[T any](v T) *T { return &v }

// Handle implements huma.Adapter: huma.Register calls it for each operation.
func (a *API) Handle(op *huma.Operation, next func(huma.Context)) {
	o := op.Metadata["operation"].(operation) // register puts it there
	a.mux.Handle(op.Method+" "+op.Path, o.route(), func(w http.ResponseWriter, r *http.Request, c door.Caller, body []byte) error {
		if o.itemized {
			return a.readBatch(w, r, c, func(r *http.Request) { next(humago.NewContext(op, r, w)) })
		}
		if body != nil {
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next(humago.NewContext(op, r, w))
		return nil
	})
}
