package api

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/receipts"
)

// Handle takes an operation of huma's in, behind the entry: role, size, JSON and
// Idempotency-Key, in this order.
func (a *API) Handle(op *huma.Operation, next func(huma.Context)) {
	o := op.Metadata["operation"].(operation) // register puts it there
	a.mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		c := callerOf(r.Context())
		if err := a.authorize(r, c, o.action); err != nil {
			a.say(w, err)
			return
		}
		if err := checkQuery(r); err != nil {
			a.say(w, err)
			return
		}
		do := func(w http.ResponseWriter) { next(humago.NewContext(op, r, w)) }
		if r.Method == http.MethodGet {
			do(w)
			return
		}
		body, err := readBody(w, r, o)
		if err != nil {
			a.say(w, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if key := r.Header.Values("Idempotency-Key"); len(key) > 0 && !o.repeats {
			a.once(w, r, o, c, key, body, do)
			return
		}
		do(w)
	})
}

// readBody reads the whole of a body, which is one JSON object or nothing.
func readBody(w http.ResponseWriter, r *http.Request, o operation) ([]byte, error) {
	most := o.body
	if most == 0 {
		most = smallBody
	}
	if given := r.Header.Get("Content-Type"); given != "" {
		if kind, _, err := mime.ParseMediaType(given); err != nil || kind != "application/json" {
			return nil, newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "send application/json (curl: --json)")
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, newProblem(http.StatusRequestEntityTooLarge, "too_large", "the body is over %d bytes", most)
	case err != nil:
		return nil, newProblem(http.StatusRequestTimeout, "too_slow", "the body did not arrive")
	case len(body) == 0:
		return nil, nil
	}
	if wrong := intake.Strict(body); wrong != nil {
		return nil, newProblem(http.StatusBadRequest, "malformed", "the body can't be read").with(wrong.Field, wrong.Problem)
	}
	if o.raw { // what is handed over is read by package intake
		return body, nil
	}
	return body, noNull(body)
}

// named is the run or the case that a path names.
func named(r *http.Request) (run background.RunID, kase background.CaseID) {
	if id, err := receipts.ParseRunID(r.PathValue("run")); err == nil {
		run = id
	}
	if id, err := receipts.ParseCaseID(r.PathValue("case")); err == nil {
		kase = id
	}
	return run, kase
}

func runID(text string) (background.RunID, error) {
	id, err := receipts.ParseRunID(text)
	if err != nil {
		return id, newProblem(http.StatusUnprocessableEntity, "invalid", "the run is named by its id").with("run", "is no UUID")
	}
	return id, nil
}

func caseID(text string) (background.CaseID, error) {
	id, err := receipts.ParseCaseID(text)
	if err != nil {
		return id, newProblem(http.StatusUnprocessableEntity, "invalid", "the case is named by its id").with("case", "is no UUID")
	}
	return id, nil
}
