package api

import (
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Prefix is the path prefix of the API.
const Prefix = "/api/v1"

// DescriptionPath is the path of the OpenAPI description. It needs no key.
const DescriptionPath = Prefix + "/openapi.json"

// API serves /api/v1. It is safe for concurrent use.
type API struct {
	service     *postadjudication.Service
	log         *zap.Logger
	door        *door.Door
	mux         *door.Mux
	description *huma.OpenAPI
}

// New returns an API of a service behind a door.
func New(s *postadjudication.Service, d *door.Door, log *zap.Logger) (*API, error) {
	a := &API{service: s, log: log, door: d, mux: d.NewMux(door.Format{
		MediaTypes: []string{"application/json"}, Description: DescriptionPath, WriteRefusal: writeProblem,
	})}
	return a, a.describe()
}

// ServeHTTP serves every path under Prefix.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Require returns a handler that passes only the requests of callers who may do action.
func (a *API) Require(action access.Action, next http.Handler) http.Handler {
	return a.mux.Require(action, next)
}

// Description returns the OpenAPI 3.1 document as it is served and committed.
func (a *API) Description() ([]byte, error) {
	text, err := json.MarshalIndent(a.description, "", " ")
	return append(text, '\n'), err
}
