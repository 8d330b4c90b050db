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

// Problem is why a request is refused, as RFC 9457 says it. Code is for programs and
// does not change; Detail is for people and may.
//
//	{"type":"urn:recourse:problem:reconcile_first","title":"Conflict","status":409,
//	 "code":"reconcile_first","detail":"...","run_id":"0198..."}
type Problem struct {
	Type   string         `json:"type" doc:"urn:recourse:problem: and the code"`
	Title  string         `json:"title" doc:"What the status means"`
	Status int            `json:"status"`
	Code   string         `json:"code" doc:"For programs; it does not change" example:"reconcile_first"`
	Detail string         `json:"detail" doc:"For people"`
	Errors []FieldProblem `json:"errors,omitempty" doc:"What is wrong with single fields"`

	Run       *background.RunID        `json:"run_id,omitempty" format:"uuid" doc:"The run that stands in the way"`
	ActiveRun *background.RunID        `json:"holder_run_id,omitempty" format:"uuid" doc:"The run that holds the case now"`
	Letter    *background.LetterStatus `json:"letter,omitempty" doc:"How the letter stands"`
	Needs     []string                 `json:"needs_one_of,omitempty" doc:"Roles, one of which the key would need"`

	Done   *Done                  `json:"done,omitempty" enum:"nothing,unknown" doc:"Of unavailable: what is known to have been done"`
	PlanID string                 `json:"plan_id,omitempty" format:"uuid" doc:"The plan that somebody else has to let run"`
	Hash   string                 `json:"hash,omitempty" doc:"Of that plan"`
	Plan   *postadjudication.Bulk `json:"plan,omitempty" doc:"That plan"`

	Scanned   int64 `json:"scanned,omitempty" doc:"Of nothing_selected: the letters of which the condition was asked"`
	Undecided int64 `json:"undecided,omitempty" doc:"Of these: the condition could not be told"`

	CancelledBy string `json:"cancelled_by,omitempty" doc:"Who cancelled what is submitted again"`
	Reason      string `json:"reason,omitempty" doc:"Why it was cancelled"`

	retryAfter int // seconds; 0: no Retry-After
	allow      string
}

// FieldProblem is one field and what is wrong with it.
type FieldProblem struct {
	Field   string `json:"field" doc:"As in the request; empty for the body as a whole" example:"amount.minor"`
	Problem string `json:"problem"`
}

func newProblem(status int, code, format string, args ...any) *Problem {
	return &Problem{
		Type: "urn:recourse:problem:" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...),
	}
}

// withRetryAfter asks to try again some seconds later.
func (p *Problem) withRetryAfter(seconds int) *Problem {
	p.retryAfter = seconds
	return p
}

// withField adds what is wrong with a field.
func (p *Problem) withField(field, problem string) *Problem {
	p.Errors = append(p.Errors, FieldProblem{field, problem})
	return p
}

func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// GetStatus makes it an answer of huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType makes it application/problem+json.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders are those that go with it.
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

// humaCodes name what huma refuses by itself.
var humaCodes = map[int]string{
	http.StatusBadRequest: "malformed", http.StatusNotAcceptable: "not_acceptable", http.StatusRequestTimeout: "too_slow",
	http.StatusRequestEntityTooLarge: "too_large", http.StatusUnsupportedMediaType: "unsupported_media_type", http.StatusUnprocessableEntity: "invalid",
}

// What huma refuses by itself, whether a list may be null, and whether the name of a
// member may differ in case from the documented one, are variables of its package.
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
			return p // what broke is for the log
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

// fieldOf is a field as in the request: huma says where it stands, too.
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

// missingField names the member that is missing, where huma names only what it is missing
// in.
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
