package openwop

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/internal/strictjson"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// read answers GET /v1/runs/{runId}.
func (s *Server) read(w http.ResponseWriter, q request) error {
	if problems := noParameters(q); problems != nil {
		return problems
	}
	log, status, err := s.openRun(q.Context(), q.caller.Tenant, q.PathValue("run"))
	if err != nil {
		return err
	}
	out := log.Snapshot(q.caller.Tenant, len(log.Events))
	if status.CancelRequested && status.State == background.Running && !log.Ended() {
		out.Status = spec.Cancelling
	}
	if out.Variables, err = s.variables(q.Context(), log); err != nil {
		return err
	}
	w.Header().Set(caseHeader, status.Case.String())
	return s.write(w, http.StatusOK, out)
}

// variables returns the inputs of a run: of a settlement what its receipt says, of another workflow those
// that it was created with.
func (s *Server) variables(ctx context.Context, log *runLog) (out map[string]json.RawMessage, err error) {
	if log.Workflow.ID == postadjudication.Family {
		return log.Terms(), nil
	}
	err = s.inReadSlot(ctx, log.tenant, func() error {
		task, err := s.Service.Task(ctx, log.tenant, log.Run)
		if err != nil || strictjson.Kind(task.Payload) != "an object" { // the library takes tasks with any payload
			return err
		}
		return json.Unmarshal(task.Payload, &out)
	})
	return out, err
}

// cancelled is the answer to a cancel.
type cancelled struct {
	Run    string      `json:"runId"`
	Status spec.Status `json:"status"`
}

// cancel answers POST /v1/runs/{runId}/cancel. A run whose attempt is under way ends as cancelled with that
// attempt if nothing was executed.
func (s *Server) cancel(w http.ResponseWriter, q request) error {
	if problems := noParameters(q); problems != nil {
		return problems
	}
	why, err := spec.ParseCancel(q.body)
	if err != nil {
		return err
	}
	log, _, err := s.openRun(q.Context(), q.caller.Tenant, q.PathValue("run"))
	if err != nil {
		return err
	}
	if why == "" {
		why = "run cancelled"
	}
	w.Header().Set(caseHeader, log.of.String())
	after, err := q.operator.Cases.Cancel(q.Context(), log.Run, reasonPrefix+why)
	switch {
	case errors.Is(err, refusal.ErrEnded):
		return spec.Conflict("run_terminal", "the run has ended", log.Run.String()).With("runStatus", statusOf(after))
	case errors.Is(err, refusal.ErrReconcileFirst):
		return spec.Conflict("reconcile_first", "it is not known whether money moved: reconcile first", log.Run.String())
	case err != nil:
		return err
	}
	return s.write(w, http.StatusOK, cancelled{log.Run.String(), statusOf(after)})
}

// statusOf returns the status of a run whose log is not read.
func statusOf(run casestatus.Status) spec.Status {
	switch run.State {
	case background.Succeeded:
		return spec.Completed
	case background.Cancelled:
		return spec.Cancelled
	case background.DeadLettered, background.Discarded:
		return spec.Failed
	case background.Running:
		if run.CancelRequested {
			return spec.Cancelling
		}
		return spec.Running
	}
	if run.Attempts > 0 {
		return spec.Running
	}
	return spec.Pending
}
