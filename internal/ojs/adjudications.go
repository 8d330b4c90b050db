package ojs

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// submit answers POST /jobs with a job that is an adjudication: args[0], as /api/v1 reads it. Its target
// is the queue of the job.
func (s *Server) submit(q request, job spec.Job) (answer, error) {
	a, err := parsed(q, func([]byte) (postadjudication.Adjudication, error) { return adjudicationOf(q, job) })
	if err != nil {
		return answer{}, err
	}
	a.Actor = q.caller.Principal
	// Before it is committed, so that its queue is listed whatever happens to this process.
	if err := q.jobs.Queues().Add(q.Context(), job.Queue); err != nil {
		return answer{}, err
	}
	out, err := s.service.Submit(q.Context(), a)
	if field := (*refusal.FieldError)(nil); errors.As(err, &field) {
		return answer{}, spec.Invalid(firstArgument+field.Field, "%s", field.Problem)
	}
	if err != nil {
		return answer{}, err
	}
	id := ""
	if !out.Run.IsZero() { // the caller may read it
		id = out.Run.String()
	}
	switch out.Reply {
	case postadjudication.Created:
		found, err := q.jobs.Find(q.Context(), id)
		if err != nil {
			return answer{}, err
		}
		return answer{http.StatusCreated, renderJob(found, q.jobs.Now()), root + "/jobs/" + id, found.Case}, nil
	case postadjudication.Deduplicated, postadjudication.AlreadyExecuted, postadjudication.Superseded:
		found, err := s.existing(q, id)
		if errors.Is(err, refusal.ErrNotFound) { // the caller may not read it
			err = spec.Duplicate("", "", "another principal submitted the adjudication").With("rule", string(out.Reply))
		}
		return found, err
	case postadjudication.RetryKeyMismatch, postadjudication.StaleGeneration, postadjudication.Conflicting:
		return answer{}, spec.Duplicate(id, "", "another adjudication of the transaction exists").With("rule", string(out.Reply))
	case postadjudication.ExceedsHeld:
		return answer{}, spec.Own(http.StatusUnprocessableEntity, string(out.Reply), "the amount and what the escrow has committed exceed what it holds")
	case postadjudication.EscrowMismatch:
		return answer{}, spec.Own(http.StatusUnprocessableEntity, string(out.Reply), "the escrow is known with another held amount or currency, or the case with another escrow")
	case postadjudication.Busy:
		return answer{}, spec.Unavailable("another transaction holds the case or its escrow; submit it again")
	}
	refused := spec.Conflict("the adjudication is not executed: see details.rule").With("rule", string(out.Reply))
	if id != "" {
		refused = refused.With("existing_job_id", id)
	}
	return answer{}, refused
}

// adjudicationOf reads the adjudication in a job. Members that would promise what adjudications do not
// have are refused.
func adjudicationOf(q request, job spec.Job) (postadjudication.Adjudication, error) {
	var none postadjudication.Adjudication
	var members map[string]json.RawMessage
	if err := json.Unmarshal(job.Stored, &members); err != nil {
		return none, err
	}
	if job.ID != "" {
		return none, spec.Invalid("id", "must be absent: the id of an adjudication is that of its run")
	}
	var args []json.RawMessage
	if err := json.Unmarshal(members["args"], &args); err != nil || len(args) != 1 {
		return none, spec.Invalid("args", "must have one element, the adjudication")
	}
	if err := checkExhaustion(members["retry"]); err != nil {
		return none, err
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains([]string{"specversion", "type", "queue", "args", "retry"}, name) {
			return none, spec.Invalid(name, "is not for adjudications")
		}
	}
	a, problems := intake.ParseObject(args[0], q.caller.Tenant)
	if len(problems) > 0 {
		return none, spec.Invalid(firstArgument+problems[0].Field, "%s", problems[0].Problem)
	}
	target := escrow.RemotePrefix + job.Queue
	if _, valid := escrow.RemoteQueue(target); !valid {
		return none, spec.Invalid("queue", "must be at most %d bytes for an adjudication", escrow.MaxTarget-len(escrow.RemotePrefix))
	}
	if a.Target != "" && a.Target != target {
		return none, spec.Invalid(firstArgument+"target", "must be absent, or %q and the queue of the job", escrow.RemotePrefix)
	}
	a.Target = target
	return a, nil
}

// firstArgument begins the path of a member of the adjudication.
const firstArgument = "args[0]."

// checkExhaustion refuses a retry policy: the policy of an adjudication is its tenant's, and it becomes a
// dead letter when its attempts are used up.
func checkExhaustion(retry json.RawMessage) error {
	var given map[string]any
	if len(retry) == 0 || json.Unmarshal(retry, &given) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch {
		case name != "on_exhaustion":
			return spec.InvalidPolicy("retry."+name, "must be absent: an adjudication has the retry policy of its tenant")
		case given[name] != "dead_letter":
			return spec.InvalidPolicy("retry."+name, "must be dead_letter for an adjudication")
		}
	}
	return nil
}

// adjudicationError returns the refusal of a change of an adjudication.
func adjudicationError(err error) error {
	var second *bulk.SecondPersonError
	var field *refusal.FieldError
	switch {
	case errors.As(err, &field) && strings.HasPrefix(field.Field, jobs.PaymentField):
		unclear := spec.Own(http.StatusUnprocessableEntity, "payment_unclear", field.Field+" "+field.Problem)
		unclear.Field = field.Field
		return unclear
	case errors.Is(err, background.ErrReconcileFirst):
		return spec.Conflict("whether money moved is unknown: a person has to find out first").With("rule", string(postadjudication.ReconcileFirst))
	case errors.Is(err, jobs.ErrNeedsPlan):
		return spec.Conflict("it takes a second person: make a plan over /api/v1 or the command line").With("rule", "second_person_required")
	case errors.As(err, &second):
		return spec.Conflict("it takes a second person: make a plan").With("rule", second.Code())
	}
	return err
}

// isAdjudication reports whether a job is an adjudication.
func isAdjudication(j jobs.Status) bool { return j.Type == jobs.AdjudicationType }
