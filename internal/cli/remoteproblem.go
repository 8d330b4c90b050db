package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication"
)

// problem is why a server refuses a request.
type problem struct {
	api.Problem
	host  string
	after time.Duration // to wait before it is asked again; 0: it need not be
}

func (p *problem) Error() string {
	text := fmt.Sprintf("%s: %s (%s)", p.host, p.inFlags(), p.Code)
	if len(p.Needs) > 0 {
		text += "; it takes the role " + strings.Join(p.Needs, " or ")
	}
	if p.Status == http.StatusUnauthorized && p.Code != "key_missing" {
		text += "; it is the one in $" + KeyVariable
	}
	for _, f := range p.Errors {
		text += "; " + f.Field + " " + f.Problem
	}
	return text
}

// inFlags is why, in the words of the command line where it has others for it.
func (p *problem) inFlags() string {
	switch p.Code {
	case "key_missing":
		return "an access key is asked for: put it in $" + KeyVariable + "; one is made by recourse keys create"
	case "tenant_mismatch":
		return "the access key is of another tenant: leave --tenant out"
	}
	return p.Detail
}

// Unwrap gives the error that the library refuses with, where it has one.
func (p *problem) Unwrap() error {
	switch p.Code {
	case "not_found":
		return postadjudication.ErrNotFound
	case "reconcile_first":
		if p.Run == nil {
			return postadjudication.ErrReconcileFirst
		}
	case "no_executor":
		return postadjudication.ErrNoExecutor
	case "target_unknown":
		return postadjudication.ErrTargetUnknown
	}
	return nil
}

// refused is the error of an answer that is no success: with the words and the exit
// code that the same refusal has without a server.
func (s *server) refused(resp *http.Response, text []byte) error {
	p := &problem{host: s.base.Host, after: retryAfter(resp.Header)}
	if err := json.Unmarshal(text, &p.Problem); err != nil || p.Code == "" || p.Status != resp.StatusCode {
		return fmt.Errorf("%s does not answer like a recourse: %s", s.base.Host, resp.Status)
	}
	switch {
	case p.Status == http.StatusServiceUnavailable && p.Code == "unavailable":
		return &exit{exitUnreachable, p}
	case p.Code == "second_person_required" && p.Plan != nil:
		second := &postadjudication.SecondPersonError{Plan: *p.Plan}
		if p.Status != http.StatusAccepted {
			second.Because = p.Detail
		}
		return second
	case p.Code == "tenant_missing":
		return &exit{exitUsage, errors.New("--tenant is missing: the server asks for no key that would say it")}
	case p.Status == http.StatusForbidden:
		return p
	case len(p.Errors) > 0:
		return &exit{exitUsage, fieldsWrong(p)}
	case p.Status == http.StatusBadRequest || p.Status == http.StatusUnprocessableEntity:
		return &exit{exitUsage, p}
	case p.Status == http.StatusConflict && p.Run != nil:
		return gateOf(p)
	}
	return p
}

// fieldsWrong are the errors that the library has for wrong fields.
func fieldsWrong(p *problem) error {
	errs := make([]error, len(p.Errors))
	for i, f := range p.Errors {
		errs[i] = &postadjudication.FieldError{Field: f.Field, Problem: f.Problem}
	}
	return errors.Join(errs...)
}

// gateOf is the error that the library has for a gate.
func gateOf(p *problem) error {
	out := &postadjudication.RefusedError{Gate: postadjudication.Gate(p.Code), Run: *p.Run, Holder: *p.Run}
	if p.Letter != nil {
		out.Letter = *p.Letter
	}
	if p.Holder != nil {
		out.Holder = *p.Holder
	}
	return out
}
