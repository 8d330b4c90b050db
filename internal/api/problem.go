package api

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
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

	Done   *Done      `json:"done,omitempty" enum:"nothing,unknown" doc:"With unavailable: what is known to have been done"`
	PlanID string     `json:"plan_id,omitempty" format:"uuid" doc:"The plan that another person has to run"`
	Hash   string     `json:"hash,omitempty" doc:"Hash of that plan"`
	Plan   *bulk.Plan `json:"plan,omitempty" doc:"That plan"`

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

// outage is the problem of a request whose servers could not be reached. A failed statement
// proves nothing: its connection may have broken after the commit, and the driver may have
// sent it twice.
type outage struct {
	done   Done
	detail string
}

// Done says what is known to have been done.
type Done string

// The values of Done.
const (
	DoneNothing Done = "nothing"
	DoneUnknown Done = "unknown"
)

const outageDetail = "Postgres or Redis can't be reached or closed the connection; "

var (
	outageNothingDone = outage{DoneNothing, "nothing was done: send the same request again"}
	outageOfSubmit    = outage{DoneUnknown, "it is not known whether anything was accepted. Submitting the same again is safe: an accepted adjudication is answered as accepted, and nothing is executed twice"}
	outageOfAction    = outage{DoneUnknown, "it is not known whether anything was done: send the same request again; nothing is done twice"}
)

func (o operation) outage() outage {
	switch {
	case o.method == http.MethodGet:
		return outageNothingDone
	case o.action == access.Submit:
		return outageOfSubmit
	}
	return outageOfAction
}

// problemOf returns the problem of an error of the service. An error that the caller can't
// correct is logged, and answered without details.
func (a *API) problemOf(ctx context.Context, whenUnavailable outage, err error) error {
	var p *Problem
	var gate *refusal.RefusedError
	var secondPerson *bulk.SecondPersonError
	var tooMany *refusal.TooManyRefusalsError
	var empty *bulk.NothingSelectedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return p
	case errors.As(err, &tooMany):
		return tooManyRefusals(int(math.Ceil(tooMany.After.Seconds())))
	case errors.As(err, &gate):
		return gateProblem(gate)
	case errors.As(err, &secondPerson):
		return secondPersonProblem(secondPerson)
	case errors.As(err, &empty):
		return nothingSelected(empty)
	case errors.Is(err, refusal.ErrNotFound):
		return newProblem(http.StatusNotFound, "not_found", "the tenant has no such object")
	}
	if fields := fieldProblems(err); len(fields) > 0 {
		p := newProblem(http.StatusUnprocessableEntity, "invalid", "%s %s", fields[0].Field, fields[0].Problem)
		p.Errors = fields
		return p
	}
	if p := sentinelProblem(err); p != nil {
		return p
	}
	if ctx.Err() == nil {
		c := callerOf(ctx)
		a.log.Error("a request failed", zap.String("request", c.requestName), zap.String("tenant", c.Tenant), zap.Error(err))
	}
	if isOutage(err) {
		p := newProblem(http.StatusServiceUnavailable, "unavailable", "%s", outageDetail+whenUnavailable.detail).withRetryAfter(2)
		p.Done = &whenUnavailable.done
		return p
	}
	return newProblem(http.StatusInternalServerError, "internal", "internal error; the log has its cause")
}

// sentinelProblem returns the problem of an error that is a single value, or nil.
func sentinelProblem(err error) *Problem {
	for _, known := range []struct {
		err        error
		status     int
		code       string
		detail     string
		retryAfter int
	}{
		{refusal.ErrReconcileFirst, http.StatusConflict, "reconcile_first", "it is not known whether money moved: reconcile first", 0},
		{refusal.ErrEnded, http.StatusConflict, "ended", "the run has ended", 0},
		{refusal.ErrUnreadable, http.StatusConflict, "unreadable", "the run was written by a newer version that this process can't read: use a newer process", 0},
		{refusal.ErrUnrecordable, http.StatusUnprocessableEntity, "unrecordable", "the request has values that can't be recorded: nothing was done", 0},
		{postadjudication.ErrBreakerNotOpen, http.StatusConflict, "breaker_not_open", "the circuit breaker is not open: there is nothing to release", 0},
		{refusal.ErrNoExecutor, http.StatusServiceUnavailable, "no_executor", "this process has no escrow service to call", 0},
		{deadletter.ErrTooManyConditions, http.StatusTooManyRequests, "too_many_conditions", "the maximum number of searches, exports and plans with a condition is running: try again when one has ended", 2},
		{refusal.ErrTargetUnknown, http.StatusServiceUnavailable, "target_unknown", "this process does not call the escrow service of the run: use one that does", 0},
		{postadjudication.ErrRequestMismatch, http.StatusUnprocessableEntity, "idempotency_mismatch", "the Idempotency-Key was used for another request within 24 hours", 0},
		{postadjudication.ErrRequestBusy, http.StatusConflict, "idempotency_in_progress", "the request with this Idempotency-Key is still in progress", 1},
		{background.ErrBusy, http.StatusServiceUnavailable, "busy", "another transaction has locked the case: try again", 1},
	} {
		if errors.Is(err, known.err) {
			return newProblem(known.status, known.code, "%s", known.detail).withRetryAfter(known.retryAfter)
		}
	}
	return nil
}

func gateProblem(e *refusal.RefusedError) *Problem {
	p := newProblem(http.StatusConflict, string(e.Gate), "%s", e.Gate.Meaning())
	if e.Because != "" {
		p.Detail += "; " + e.Because
	}
	p.Run = &e.Run
	if e.Letter != background.NoLetter {
		p.Letter = &e.Letter
	}
	if !e.ActiveRun.IsZero() && e.ActiveRun != e.Run {
		p.ActiveRun = &e.ActiveRun
	}
	return p
}

// nothingSelected returns the problem of a plan that selects nothing.
func nothingSelected(e *bulk.NothingSelectedError) *Problem {
	p := newProblem(http.StatusUnprocessableEntity, "nothing_selected", "nothing is selected: no plan was made")
	if e.Undecided > 0 {
		p.Detail += fmt.Sprintf("; of %d letters scanned, the condition had no result for %d", e.Scanned, e.Undecided)
	}
	p.Scanned, p.Undecided = e.Scanned, e.Undecided
	return p
}

// secondPersonProblem returns 202 if an action was planned that another person has to run, and
// 409 if the caller may not run the plan.
func secondPersonProblem(e *bulk.SecondPersonError) *Problem {
	status, detail := http.StatusAccepted, "it is planned, and another person has to run it: POST "+Prefix+"/bulk/"+e.Plan.ID.String()+"/run with its hash, by another principal's key"
	if e.Because != "" {
		status, detail = http.StatusConflict, e.Because
	}
	p := newProblem(status, e.Code(), "%s", detail)
	p.PlanID, p.Hash, p.Plan = e.Plan.ID.String(), e.Plan.Hash, &e.Plan
	return p
}

// fieldProblems returns the field errors in a joined error.
func fieldProblems(err error) (out []FieldProblem) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, fieldProblems(e)...)
		}
		return out
	}
	var f *refusal.FieldError
	if errors.As(err, &f) {
		out = append(out, FieldProblem{f.Field, f.Problem})
	}
	return out
}

// isOutage reports whether a server could not be reached or closed the connection.
func isOutage(err error) bool {
	var network net.Error
	var state interface{ SQLState() string }
	for _, broken := range []error{context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, driver.ErrBadConn, sql.ErrConnDone, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, broken) {
			return true
		}
	}
	switch {
	case errors.As(err, &network):
		return true
	case errors.As(err, &state):
		class := state.SQLState()
		return len(class) == 5 && (class[:2] == "08" || class[:2] == "53" || class[:2] == "57" || class == "3D000" || class == readOnlyTransaction)
	}
	return false
}

// readOnlyTransaction is the SQLSTATE of a write to a server that has become a standby.
const readOnlyTransaction = "25006"

// writeProblem writes a problem outside of huma. An error that is no *Problem is written as
// 500 internal.
func (a *API) writeProblem(w http.ResponseWriter, err error) {
	var p *Problem
	if !errors.As(err, &p) {
		p = newProblem(http.StatusInternalServerError, "internal", "internal error; the log has its cause")
	}
	a.countRefusal(p)
	body, merr := json.Marshal(p)
	if merr != nil {
		a.log.Error("failed to encode a problem", zap.Error(merr))
	}
	for name := range p.GetHeaders() {
		w.Header().Add(name, p.GetHeaders().Get(name))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	if _, err := w.Write(append(body, '\n')); err != nil {
		a.log.Debug("failed to write a problem", zap.Error(err))
	}
}
