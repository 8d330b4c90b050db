package api

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/retrypolicy"
)

const about = `Recourse carries adjudicated escrow decisions until they are settled, or keeps them as dead letters for a person.

The tenant is the access key's, and the actor of whatever is done is its principal.
Amounts are whole numbers in the minor unit of their currency. Every refusal is
application/problem+json with a code that does not change. A POST or DELETE that
changes something may carry an Idempotency-Key: for 24 hours the same request then gets
the same answer. To submit adjudications needs none: submitting the same again changes nothing.`

// describe registers the operations and builds their description.
func (a *API) describe() error {
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Recourse", Version: "1", Description: about},
			Components: &huma.Components{
				Schemas:         newSchemas(),
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
	returnAPI{a}.operations(h)
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
	webhookAPI{a}.operations(h)
	keyAPI{a}.operations(h)
	peopleAPI{a}.operations(h)
	describeExpiryHeader(a.description)
	a.description.Servers = []*huma.Server{{URL: "/", Description: "The server that serves this description"}}
	if err := describeMembers(a.description.Components.Schemas.Map()); err != nil {
		return err
	}
	text, err := a.Description()
	if err != nil {
		return err
	}
	a.mux.HandlePublic("GET "+DescriptionPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		if _, err := w.Write(text); err != nil {
			a.log.Debug("failed to write the description", zap.Error(err))
		}
	}))
	return nil
}
