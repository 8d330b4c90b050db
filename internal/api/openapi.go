package api

import (
	"context"
	"errors"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/retrypolicy"
)

const about = `Recourse carries adjudicated escrow decisions until they are settled, or keeps them as dead letters for a person.

The tenant is the access key's, and the actor of whatever is done is its principal.
Amounts are whole numbers in the minor unit of their currency. Every refusal is
application/problem+json with a code that does not change. A POST that changes
something may carry an Idempotency-Key: for 24 hours the same request is then given
the same answer; to hand over adjudications needs none, the retry key does it.`

// describe registers the operations and builds their description.
func (a *API) describe() error {
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Recourse", Version: "1", Description: about},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer", Description: "rck_<prefix>_<secret>"}},
			},
			Security: []map[string][]string{{"key": {}}},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat}, // the latter for problem+json
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	}
	h := huma.NewAPI(config, a)
	a.description = h.OpenAPI()
	// Types with their own MarshalJSON are described by what they write.
	a.description.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[retrypolicy.Policy](), reflect.TypeFor[PolicyBody]())
	adjudicationAPI{a}.operations(h)
	runAPI{a}.operations(h)
	caseAPI{a}.operations(h)
	letterAPI{a}.operations(h)
	annotationAPI{a}.operations(h)
	analysisAPI{a}.operations(h)
	exportAPI{a}.operations(h)
	bulkAPI{a}.operations(h)
	ruleAPI{a}.operations(h)
	breakerAPI{a}.operations(h)
	policyAPI{a}.operations(h)
	policyAPI{a}.historyOperations(h)
	historyAPI{a}.operations(h)
	retentionAPI{a}.operations(h)
	eventAPI{a}.operations(h)
	keyAPI{a}.operations(h)
	peopleAPI{a}.operations(h)
	describeExpiryHeader(a.description)
	text, err := a.Description()
	if err != nil {
		return err
	}
	a.mux.HandleFunc("GET "+DescriptionPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		if _, err := w.Write(text); err != nil {
			a.log.Debug("failed to write the description", zap.Error(err))
		}
	})
	return nil
}

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
