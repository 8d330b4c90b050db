package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Problem is a refusal in the format of RFC 9457. Code is for programs and is stable;
// Detail is for people and may change.
//
//	{"type":"urn:recourse:problem:reconcile_first","title":"Conflict","status":409,
//	 "code":"reconcile_first","detail":"...","run_id":"0198..."}
type Problem struct {
	Type   string         `json:"type" doc:"urn:recourse:problem: followed by the code"`
	Title  string         `json:"title" doc:"Name of the status"`
	Status int            `json:"status"`
	Code   string         `json:"code" doc:"For programs; stable" example:"reconcile_first"`
	Detail string         `json:"detail" doc:"For people; may change"`
	Errors []FieldProblem `json:"errors,omitempty" doc:"Problems of single fields"`

	Run       *background.RunID        `json:"run_id,omitempty" format:"uuid" doc:"The run that the refusal is about"`
	ActiveRun *background.RunID        `json:"holder_run_id,omitempty" format:"uuid" doc:"The active run of the case"`
	Letter    *background.LetterStatus `json:"letter,omitempty" doc:"Status of the letter"`
	Needs     []string                 `json:"needs_one_of,omitempty" doc:"Roles that allow it; the key needs one of them"`

	Done   *door.Done `json:"done,omitempty" enum:"nothing,unknown" doc:"With unavailable: what is known to have been done"`
	PlanID string     `json:"plan_id,omitempty" format:"uuid" doc:"The plan that another person has to run"`
	Hash   string     `json:"hash,omitempty" doc:"Hash of that plan"`
	Plan   *bulk.Plan `json:"plan,omitempty" doc:"That plan"`

	Scanned   int64 `json:"scanned,omitempty" doc:"With nothing_selected: letters that the condition was evaluated on"`
	Undecided int64 `json:"undecided,omitempty" doc:"With nothing_selected: scanned letters on which the condition had no result"`

	CancelledBy string `json:"cancelled_by,omitempty" doc:"Who cancelled the adjudication"`
	Reason      string `json:"reason,omitempty" doc:"Why it was cancelled"`

	headers http.Header
}

const problemType = "application/problem+json"

// FieldProblem is a field and its problem.
type FieldProblem struct {
	Field   string `json:"field" doc:"As in the request; empty for the body as a whole" example:"amount.minor"`
	Problem string `json:"problem"`
}

// problemOf renders a refusal, and what the service says beyond it.
func problemOf(refused *door.Refusal) *Problem {
	p := &Problem{
		Type: "urn:recourse:problem:" + refused.Code, Title: http.StatusText(refused.Status), Status: refused.Status, Code: refused.Code, Detail: refused.Detail,
		headers: refused.Headers(),
	}
	for _, f := range refused.Fields {
		p.Errors = append(p.Errors, FieldProblem{f.Field, f.Problem})
	}
	for _, role := range refused.Needs {
		p.Needs = append(p.Needs, string(role))
	}
	if refused.Done != "" {
		p.Done = &refused.Done
	}
	var gate *refusal.RefusedError
	var about *runError
	var secondPerson *bulk.SecondPersonError
	var empty *bulk.NothingSelectedError
	switch {
	case errors.As(refused, &gate):
		p.addGate(gate)
	case errors.As(refused, &about):
		p.addRun(about)
	case errors.As(refused, &secondPerson):
		p.addPlan(&secondPerson.Plan)
	case errors.As(refused, &empty):
		p.Scanned, p.Undecided = empty.Scanned, empty.Undecided
	}
	return p
}

func (p *Problem) addGate(e *refusal.RefusedError) {
	p.Run = &e.Run
	if e.Letter != background.NoLetter {
		p.Letter = &e.Letter
	}
	if !e.ActiveRun.IsZero() && e.ActiveRun != e.Run {
		p.ActiveRun = &e.ActiveRun
	}
}

// runError is the cause of a refusal that is about a run.
type runError struct {
	run                 background.RunID // zero: none
	cancelledBy, reason string           // of a cancelled adjudication
}

func (e *runError) Error() string { return "api: refused because of the run " + e.run.String() }

func (p *Problem) addRun(e *runError) {
	if !e.run.IsZero() {
		p.Run = &e.run
	}
	p.CancelledBy, p.Reason = e.cancelledBy, e.reason
}

// addPlan adds the plan that another person has to run, and where to.
func (p *Problem) addPlan(plan *bulk.Plan) {
	p.PlanID, p.Hash, p.Plan = plan.ID.String(), plan.Hash, plan
	if p.Status == http.StatusAccepted {
		path := Prefix + "/bulk/" + p.PlanID
		p.Detail += ": POST " + path + "/run with its hash, by another principal's key"
		p.headers.Set("Location", path)
	}
}

func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemType }

// GetHeaders returns the headers of the answer; it implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header { return p.headers }

// writeProblem writes a refusal outside of huma.
func writeProblem(w http.ResponseWriter, _ *http.Request, refused *door.Refusal) error {
	body, err := json.Marshal(problemOf(refused))
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(refused.Status)
	_, werr := w.Write(append(body, '\n'))
	return errors.Join(err, werr)
}

// humaCodes are the codes of the statuses that huma itself refuses with.
var humaCodes = map[int]string{
	http.StatusBadRequest: "malformed", http.StatusNotAcceptable: "not_acceptable", http.StatusRequestTimeout: "too_slow",
	http.StatusRequestEntityTooLarge: "too_large", http.StatusUnsupportedMediaType: "unsupported_media_type", http.StatusUnprocessableEntity: "invalid",
}

// Package variables of huma hold the function that makes its errors, whether a list may be
// null, and whether the name of a member may differ in case from the documented one.
func init() {
	huma.DefaultArrayNullable = false
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, detail string, errs ...error) huma.StatusError {
		code, known := humaCodes[status]
		if !known {
			code = "internal"
		}
		refused := door.NewRefusal(status, code, "%s", detail)
		if status >= http.StatusInternalServerError {
			return problemOf(refused) // the cause is only logged
		}
		for _, err := range errs {
			if err == nil {
				continue
			}
			where := ""
			message := err.Error()
			if d, ok := err.(huma.ErrorDetailer); ok {
				where, message = d.ErrorDetail().Location, d.ErrorDetail().Message
			}
			refused.WithField(missingField(fieldOf(where), message))
		}
		return problemOf(refused)
	}
}

// fieldOf returns the name of a field as in the request. huma prefixes its location.
func fieldOf(location string) string {
	for _, where := range []string{"body", "query", "path", "header"} {
		if location == where {
			return ""
		}
		if rest, ok := strings.CutPrefix(location, where+"."); ok {
			return rest
		}
	}
	return location
}

// missingField returns the name of a missing member, where huma names only the object that it
// is missing in.
func missingField(field, message string) (name, problem string) {
	var member string
	if n, err := fmt.Sscanf(message, validation.MsgExpectedRequiredProperty, &member); err != nil || n != 1 {
		return field, message
	}
	if field != "" {
		member = field + "." + member
	}
	return member, "must be given"
}
