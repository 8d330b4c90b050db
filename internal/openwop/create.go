package openwop

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// create answers POST /v1/runs.
func (s *Server) create(w http.ResponseWriter, q request) error {
	if problems := noParameters(q); problems != nil {
		return problems
	}
	var asked spec.Create
	var err error
	if waited := tenantlimit.InTurn(q.Context(), q.caller.Tenant, len(q.body), func() { asked, err = spec.ParseCreate(q.body) }); waited != nil {
		return waited
	}
	if err != nil {
		return err
	}
	if asked.Tenant != "" && asked.Tenant != q.caller.Tenant {
		return spec.Invalid(spec.Problem{Field: "tenantId", Problem: "is not the tenant of the key: leave it out"})
	}
	workflow, known := s.workflows[asked.Workflow]
	if !known {
		return spec.Invalid(spec.Problem{Field: "workflowId", Problem: "is no workflow of this host: the workflows are " + strings.Join(s.workflowIDs(), ", ")})
	}
	submit := s.createTask
	if workflow.ID == postadjudication.Family {
		submit = s.createSettlement
	}
	out, err := submit(q, asked)
	if err != nil {
		return s.inInputs(q.Context(), err)
	}
	run := out.Run
	if out.Reply != postadjudication.Created {
		if run, err = s.runOfRequest(q, out.Case); err != nil {
			return err
		}
		if run.IsZero() {
			return s.notCreated(q, out)
		}
	}
	path := runs + "/" + run.String()
	w.Header().Set("Location", path)
	w.Header().Set(caseHeader, out.Case.String())
	return s.write(w, http.StatusCreated, created{Run: run.String(), Status: spec.Pending, EventsURL: absolute(q.Request, path+"/events"), StatusURL: absolute(q.Request, path)})
}

// createSettlement submits the adjudication that the inputs are.
func (s *Server) createSettlement(q request, asked spec.Create) (postadjudication.Submitted, error) {
	var a postadjudication.Adjudication
	var problems []intake.Problem
	if err := tenantlimit.InTurn(q.Context(), q.caller.Tenant, len(asked.Inputs), func() { a, problems = intake.ParseObject(asked.Inputs, q.caller.Tenant) }); err != nil {
		return postadjudication.Submitted{}, err
	}
	if len(problems) > 0 {
		named := make([]spec.Problem, len(problems))
		for i, p := range problems {
			named[i] = spec.Problem{Field: inputField(p.Field), Problem: p.Problem}
		}
		return postadjudication.Submitted{}, spec.Invalid(named...)
	}
	a.Actor, a.Request = q.caller.Principal, door.RequestID(q.Context())
	return s.Service.Submit(q.Context(), a)
}

// createTask submits a task of a plain family. The retry key of one with an Idempotency-Key is that of its
// request, so that a request that is sent again creates no second task, even if the first has ended.
func (s *Server) createTask(q request, asked spec.Create) (postadjudication.Submitted, error) {
	t := postadjudication.Task{Tenant: q.caller.Tenant, Family: asked.Workflow, Payload: asked.Inputs, Actor: q.caller.Principal, Request: door.RequestID(q.Context())}
	if t.Request != "" {
		t.RetryKey, t.Once = "openwop:"+t.Request, true
	}
	return s.Service.SubmitTask(q.Context(), t)
}

// notCreated returns the refusal of a run that was not created. It names the run that answers for it, if the
// door shows that.
func (s *Server) notCreated(q request, out postadjudication.Submitted) error {
	run := ""
	if !out.Run.IsZero() {
		_, _, err := s.openRun(q.Context(), q.caller.Tenant, out.Run.String())
		switch {
		case err == nil:
			run = out.Run.String()
		case !errors.Is(err, refusal.ErrNotFound):
			return err
		}
	}
	switch out.Reply {
	case postadjudication.Deduplicated:
		return spec.Conflict("run_already_active", "the adjudication is being executed", run)
	case postadjudication.AlreadyExecuted:
		return spec.Conflict("already_executed", "it was executed before: nothing is executed twice", run)
	case postadjudication.DeadLettered:
		message := "it was dead-lettered: fork the run"
		if run == "" && !out.Run.IsZero() { // of a run that the caller may not read nothing is known
			message = "it was dead-lettered, and the days in which it can be forked here are over"
		}
		return spec.Conflict(string(out.Reply), message, run)
	case postadjudication.Busy:
		return door.NewRefusal(http.StatusServiceUnavailable, "busy", "another transaction has locked the case: try again").WithRetryAfter(1)
	}
	message := "the case does not allow it"
	if out.State != "" {
		message += ": its state is " + string(out.State)
	}
	return spec.Conflict(string(out.Reply), message, run)
}

// inInputs returns the refusal of an adjudication or a task, whose fields the client knows as members of
// its inputs.
func (s *Server) inInputs(ctx context.Context, err error) error {
	var own *spec.Error
	if errors.As(err, &own) {
		return err
	}
	refused := *s.Door.RefusalOf(ctx, err)
	refused.Fields = slices.Clone(refused.Fields)
	for i := range refused.Fields {
		refused.Fields[i].Field = inputField(refused.Fields[i].Field)
	}
	return &refused
}

func inputField(field string) string {
	if field == "" {
		return "inputs"
	}
	return "inputs." + field
}
