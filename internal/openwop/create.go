package openwop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/postadjudication"
)

// create answers POST /v1/runs.
func (s *Server) create(w http.ResponseWriter, q request) error {
	if problems := noParameters(q); problems != nil {
		return problems
	}
	asked, err := spec.ParseCreate(q.body)
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
	if out.Reply != postadjudication.Created {
		made, err := s.madeBefore(q.Context(), q, out.Run)
		switch {
		case err != nil:
			return err
		case !made:
			return notCreated(out)
		}
	}
	path := runs + "/" + out.Run.String()
	w.Header().Set("Location", path)
	return s.write(w, http.StatusCreated, created{Run: out.Run.String(), Status: spec.Pending, EventsURL: absolute(q.Request, path+"/events"), StatusURL: absolute(q.Request, path)})
}

// createSettlement submits the adjudication that the inputs are.
func (s *Server) createSettlement(q request, asked spec.Create) (postadjudication.Submitted, error) {
	a, problems := intake.ParseObject(asked.Inputs, q.caller.Tenant)
	if len(problems) > 0 {
		named := make([]spec.Problem, len(problems))
		for i, p := range problems {
			named[i] = spec.Problem{Field: inputField(p.Field), Problem: p.Problem}
		}
		return postadjudication.Submitted{}, spec.Invalid(named...)
	}
	a.Actor = q.caller.Principal
	return s.Service.Submit(q.Context(), a)
}

// createTask submits a task of a plain family. If an earlier request with the same Idempotency-Key may have
// created it, it creates no second one, even if the first has ended.
func (s *Server) createTask(q request, asked spec.Create) (postadjudication.Submitted, error) {
	t := postadjudication.Task{Tenant: q.caller.Tenant, Family: asked.Workflow, Payload: asked.Inputs, Actor: q.caller.Principal}
	if q.Header.Get("Idempotency-Key") != "" {
		t.RetryKey, t.Once = taskKey(q), !door.InterruptedAt(q.Context()).IsZero()
	}
	return s.Service.SubmitTask(q.Context(), t)
}

// taskKey returns the retry key of a task that is created with an Idempotency-Key. Callers don't see it,
// and no key that we make ourselves begins like it.
func taskKey(q request) string {
	sum := sha256.Sum256([]byte(q.caller.Principal + "\n" + q.Header.Get("Idempotency-Key")))
	return "openwop-request:" + hex.EncodeToString(sum[:])
}

// notCreated returns the refusal of a run that was not created.
func notCreated(out postadjudication.Submitted) error {
	run := out.Run.String()
	if out.Run.IsZero() {
		run = ""
	}
	switch out.Reply {
	case postadjudication.Deduplicated:
		return spec.Conflict("run_already_active", "the adjudication is being executed", run)
	case postadjudication.AlreadyExecuted:
		return spec.Conflict("already_executed", "it was executed before: nothing is executed twice", run)
	case postadjudication.DeadLettered:
		return spec.Conflict(string(out.Reply), "it was dead-lettered: fork the run", run)
	case postadjudication.Busy:
		return door.NewRefusal(http.StatusServiceUnavailable, "busy", "another transaction has locked the case: try again").WithRetryAfter(1)
	}
	return spec.Conflict(string(out.Reply), "the case does not allow it: its state is "+string(out.State), run)
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
