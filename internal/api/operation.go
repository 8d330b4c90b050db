package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/internal/strictjson"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
)

// operation describes an operation of the API.
type operation struct {
	id, method, path, summary, description string
	action                                 access.Action
	status                                 int   // on success; 0: 200
	maxBody                                int64 // in bytes; 0: maxBodyBytes
	idempotent                             bool  // safe to repeat without an Idempotency-Key
	secret                                 bool  // its answer has members that must not be stored
	raw                                    bool  // reads its body itself
	itemized                               bool  // its body is a list, read item by item: see batchItems
	plannable                              bool  // may answer 202 with a plan that another person has to run
	waits                                  bool  // a read that may wait for long, and takes no slot of the reads
}

const (
	maxBodyBytes  = 16 << 10
	maxItemBytes  = 64 << 10
	maxBatchBytes = 16 << 20
)

// register adds an operation. Its errors are answered as problems.
func register[I, O any](a *API, h huma.API, o operation, do func(context.Context, Caller, *I) (*O, error)) {
	op := huma.Operation{
		OperationID: o.id, Method: o.method, Path: Prefix + o.path, Summary: o.summary, Description: o.description, DefaultStatus: o.status,
		MaxBodyBytes:     -1, // Handle limits it
		SkipValidateBody: o.raw,
		Metadata:         map[string]any{"operation": o},
		Extensions:       map[string]any{"x-action": o.action, "x-roles": access.Allowed(o.action)},
	}
	if !o.idempotent && o.method == http.MethodPost {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "Idempotency-Key", In: "header", Description: "Makes the request safe to repeat for 24 hours",
			Schema: &huma.Schema{Type: "string", MaxLength: pointer(255)},
		})
	}
	if o.plannable {
		schema := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "")
		op.Responses = map[string]*huma.Response{"202": {
			Description: "second_person_required: it is planned, and another person has to run it",
			Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: schema}},
		}}
	}
	a.actions[o.id] = o.action
	huma.Register(h, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := limited(ctx, a.reads, o, in, do)
		err = a.problemOf(ctx, o.outage(), err)
		if p := (*Problem)(nil); errors.As(err, &p) {
			a.countRefusal(p)
		}
		return out, err
	})
}

// limited runs an operation. A read waits for a slot of its tenant's reads. It holds the slot
// while it reads, and not while its answer is written.
func limited[I, O any](ctx context.Context, reads *tenantlimit.Limit, o operation, in *I, do func(context.Context, Caller, *I) (*O, error)) (out *O, err error) {
	c := callerOf(ctx)
	if o.method != http.MethodGet || o.waits {
		return do(ctx, c, in)
	}
	if waitErr := reads.Do(ctx, c.Tenant, func() { out, err = do(ctx, c, in) }); waitErr != nil {
		return nil, waitErr
	}
	return out, err
}

func pointer[T any](v T) *T { return &v }

// Handle implements huma.Adapter: huma.Register calls it for each operation. It registers a handler
// that checks role and query, then, of a method other than GET, content type, size and JSON, and then
// Idempotency-Key.
func (a *API) Handle(op *huma.Operation, next func(huma.Context)) {
	o := op.Metadata["operation"].(operation) // register puts it there
	a.mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		w = &deadlineResponse{ResponseWriter: w}
		c := callerOf(r.Context())
		if err := a.authorize(r, c, o.action); err != nil {
			a.writeProblem(w, err)
			return
		}
		if err := checkQuery(r); err != nil {
			a.writeProblem(w, err)
			return
		}
		if o.itemized {
			a.readBatch(w, r, c, func(r *http.Request) { next(humago.NewContext(op, r, w)) })
			return
		}
		do := func(w http.ResponseWriter) { next(humago.NewContext(op, r, w)) }
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			do(w)
			return
		}
		body, err := readBody(w, r, o)
		if err != nil {
			a.writeProblem(w, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if key := r.Header.Values("Idempotency-Key"); len(key) > 0 && !o.idempotent {
			a.doOnce(w, r, o, c, key, body, do)
			return
		}
		do(w)
	})
}

// readBody reads a whole body, which must be one JSON object or empty.
func readBody(w http.ResponseWriter, r *http.Request, o operation) ([]byte, error) {
	most := o.maxBody
	if most == 0 {
		most = maxBodyBytes
	}
	if err := checkContentType(r); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		return nil, unreadBodyProblem(err, most)
	}
	if len(body) == 0 {
		return nil, nil
	}
	if err := strictjson.CheckObject(body); err != nil {
		return nil, malformedProblem(err)
	}
	if o.raw { // package intake checks it
		return body, nil
	}
	return body, rejectNulls(body)
}

func checkContentType(r *http.Request) error {
	given := r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	kind, params, err := mime.ParseMediaType(given)
	if err != nil || kind != "application/json" || !strings.EqualFold(cmp.Or(params["charset"], "utf-8"), "utf-8") {
		return newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "send application/json in UTF-8 (curl: --json)")
	}
	return nil
}

// malformedProblem returns the problem of a body that is invalid JSON.
func malformedProblem(err error) *Problem {
	p := newProblem(http.StatusBadRequest, "malformed", "the body can't be read")
	var wrong *strictjson.Error
	if errors.As(err, &wrong) {
		return p.withField(redact.Text(wrong.Field), wrong.Problem)
	}
	return p
}

// unreadBodyProblem returns the problem of a body that could not be read to its end.
func unreadBodyProblem(err error, most int64) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return newProblem(http.StatusRequestEntityTooLarge, "too_large", "the body is over %d bytes", most)
	}
	return newProblem(http.StatusRequestTimeout, "too_slow", "the body did not arrive")
}

// answerTimeout is how long a reader may take to read an answer; streams set their own deadline.
const answerTimeout = 30 * time.Second

// deadlineResponse starts the write deadline with the first byte of the answer, so that an
// operation that took long can still be answered.
type deadlineResponse struct {
	http.ResponseWriter
	started bool
}

// Unwrap is for http.ResponseController.
func (w *deadlineResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *deadlineResponse) WriteHeader(status int) {
	w.start()
	w.ResponseWriter.WriteHeader(status)
}

func (w *deadlineResponse) Write(b []byte) (int, error) {
	w.start()
	return w.ResponseWriter.Write(b)
}

func (w *deadlineResponse) start() {
	if w.started {
		return
	}
	w.started = true
	// A writer may not support deadlines; on a closed connection Write returns the error.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTimeout))
}
