package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// ProblemError is a refusal that the library has no error for, as the server describes it
// (RFC 9457).
type ProblemError struct {
	api.Problem
	Host       string
	RetryAfter time.Duration // 0: the server asks for no retry
}

func (p *ProblemError) Error() string {
	text := fmt.Sprintf("%s: %s (%s)", p.Host, p.Detail, p.Code)
	if len(p.Needs) > 0 {
		text += "; it needs the role " + strings.Join(p.Needs, " or ")
	}
	for _, f := range p.Errors {
		text += "; " + f.Field + " " + f.Problem
	}
	return text
}

// Unwrap returns the library's error for the refusal, or nil.
func (p *ProblemError) Unwrap() error {
	switch p.Code {
	case "not_found":
		return refusal.ErrNotFound
	case "reconcile_first":
		if p.Run == nil {
			return refusal.ErrReconcileFirst
		}
	case "no_executor":
		return refusal.ErrNoExecutor
	case "target_unknown":
		return refusal.ErrTargetUnknown
	case "no_webhook_key":
		return webhooks.ErrNoKey
	case "too_many_webhooks":
		return webhooks.ErrTooMany
	}
	return nil
}

// Unavailable reports whether the server can't reach Postgres or Redis.
func (p *ProblemError) Unavailable() bool {
	return p.Status == http.StatusServiceUnavailable && p.Code == "unavailable"
}

// problemError returns the error of an answer that is no success: the library's error for the
// refusal, if it has one, else a *ProblemError.
func (c *connection) problemError(resp *http.Response, text []byte) error {
	p := &ProblemError{Host: c.base.Host, RetryAfter: retryAfter(resp.Header)}
	if err := json.Unmarshal(text, &p.Problem); err != nil || p.Code == "" || p.Status != resp.StatusCode {
		return fmt.Errorf("%s does not answer like a recourse server: %s", c.base.Host, resp.Status)
	}
	switch {
	case p.Unavailable():
		return p
	case p.Code == "second_person_required" && p.Plan != nil:
		second := &bulk.SecondPersonError{Plan: *p.Plan}
		if p.Status != http.StatusAccepted {
			second.Because = p.Detail
		}
		return second
	case p.Code == "nothing_selected":
		return &bulk.NothingSelectedError{Scanned: p.Scanned, Undecided: p.Undecided}
	case p.Code == "tenant_missing" || p.Status == http.StatusForbidden:
		return p
	case len(p.Errors) > 0:
		return fieldErrors(p)
	case p.Status == http.StatusConflict && p.Run != nil:
		return gateError(p)
	}
	return p
}

// fieldErrors returns the library's errors for the fields of a problem.
func fieldErrors(p *ProblemError) error {
	errs := make([]error, len(p.Errors))
	for i, f := range p.Errors {
		errs[i] = &refusal.FieldError{Field: f.Field, Problem: f.Problem}
	}
	return errors.Join(errs...)
}

// gateError returns the library's error for a refusal by a gate.
func gateError(p *ProblemError) error {
	out := &refusal.RefusedError{Gate: refusal.Gate(p.Code), Run: *p.Run, ActiveRun: *p.Run}
	if because, found := strings.CutPrefix(p.Detail, out.Gate.Meaning()+"; "); found {
		out.Because = because
	}
	if p.Letter != nil {
		out.Letter = *p.Letter
	}
	if p.ActiveRun != nil {
		out.ActiveRun = *p.ActiveRun
	}
	return out
}
