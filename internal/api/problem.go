package api

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
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

	Done   *Done                  `json:"done,omitempty" enum:"nothing,unknown" doc:"With unavailable: what is known to have been done"`
	PlanID string                 `json:"plan_id,omitempty" format:"uuid" doc:"The plan that another person has to run"`
	Hash   string                 `json:"hash,omitempty" doc:"Hash of that plan"`
	Plan   *postadjudication.Bulk `json:"plan,omitempty" doc:"That plan"`

	Scanned   int64 `json:"scanned,omitempty" doc:"With nothing_selected: letters that the condition was evaluated on"`
	Undecided int64 `json:"undecided,omitempty" doc:"With nothing_selected: scanned letters on which the condition had no result"`

	CancelledBy string `json:"cancelled_by,omitempty" doc:"Who cancelled the adjudication"`
	Reason      string `json:"reason,omitempty" doc:"Why it was cancelled"`

	retryAfter int // in seconds; 0: no Retry-After
	allow      string
}

// FieldProblem is a field and its problem.
type FieldProblem struct {
	Field   string `json:"field" doc:"As in the request; empty for the body as a whole" example:"amount.minor"`
	Problem string `json:"problem"`
}

func newProblem(status int, code, format string, args ...any) *Problem {
	return &Problem{
		Type: "urn:recourse:problem:" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...),
	}
}

// withRetryAfter sets Retry-After to some seconds; 0: none.
func (p *Problem) withRetryAfter(seconds int) *Problem {
	p.retryAfter = seconds
	return p
}

// withField adds the problem of a field.
func (p *Problem) withField(field, problem string) *Problem {
	p.Errors = append(p.Errors, FieldProblem{field, problem})
	return p
}

func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders returns the headers of the answer; it implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retryAfter > 0 {
		h.Set("Retry-After", fmt.Sprint(p.retryAfter))
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.Status == http.StatusAccepted {
		h.Set("Location", Prefix+"/bulk/"+p.PlanID)
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="recourse"`)
	}
	return h
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
		p := newProblem(status, code, "%s", detail)
		if status >= http.StatusInternalServerError {
			return p // the cause is only logged
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
			p.withField(missingField(fieldOf(where), message))
		}
		return p
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
