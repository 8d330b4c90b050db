package openwop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// fork answers POST /v1/runs/{runId}:fork. The newest run of the source's lineage is forked, so that a
// dead-lettered run can be forked for as long as it is shown, and has one live fork at a time.
func (s *Server) fork(w http.ResponseWriter, q request) error {
	if problems := noParameters(q); problems != nil {
		return problems
	}
	asked, err := spec.ParseFork(q.body)
	if err != nil {
		return err
	}
	source, _, err := s.openRun(q.Context(), q.caller.Tenant, q.PathValue("run"))
	switch {
	case err != nil:
		return err
	case asked.FromSeq > 0 && asked.FromSeq >= len(source.Events):
		return &spec.Error{Status: http.StatusUnprocessableEntity, Code: "fork_point_invalid", Message: "fromSeq names no event of the run", Details: map[string]any{"events": len(source.Events)}}
	case asked.Mode != spec.Branch:
		return &spec.Error{Status: http.StatusNotImplemented, Code: "fork_unsupported_mode", Message: "this host forks in the mode branch only", Details: map[string]any{"supported": []spec.ForkMode{spec.Branch}}}
	}
	run, err := s.forkNewest(q, source, asked.FromSeq)
	if err != nil {
		return err
	}
	path := runs + "/" + run.String()
	w.Header().Set("Location", path)
	w.Header().Set(caseHeader, source.of.String())
	return s.write(w, http.StatusCreated, created{
		Run: run.String(), Source: source.Run.String(), FromSeq: &asked.FromSeq, Mode: asked.Mode, Status: spec.Pending,
		EventsURL: absolute(q.Request, path+"/events"), StatusURL: absolute(q.Request, path),
	})
}

// forkTries bounds how often a fork is decided anew because another request changed the newest run.
const forkTries = 3

// forkNewest forks the newest run of the source's lineage.
func (s *Server) forkNewest(q request, source *runLog, fromSeq int) (background.RunID, error) {
	reason := fmt.Sprintf("%sfork of %s from event %d", reasonPrefix, source.Run, fromSeq)
	for range forkTries {
		lineage, err := s.Service.Lineage(q.Context(), q.caller.Tenant, source.Run)
		if err != nil {
			return background.RunID{}, err
		}
		newest := lineage.Runs[len(lineage.Runs)-1] // the last fork: Lineage follows the forks, not the ids
		// The lineage is read before the search for a run by this request. A run made in between is found, or makes
		// Fork and RunAgain refuse, or answer with it.
		if made, err := s.runOfRequest(q, source.of); err != nil || !made.IsZero() {
			return made, err
		}
		if newest.State.Live() {
			return background.RunID{}, alreadyActive(newest.Run)
		}
		if newest.Family == postadjudication.Family || newest.Letter == background.LetterOpen {
			forked, err := q.operator.DeadLetters.Fork(q.Context(), newest.Run, deadletter.Fork{Reason: reason, RequestID: door.RequestID(q.Context())})
			return forked.Run, s.forkRefusal(q.Context(), newest, err)
		}
		again, err := q.operator.Cases.RunAgain(q.Context(), newest.Run, postadjudication.Repetition{Reason: reason, RequestID: door.RequestID(q.Context())})
		switch {
		case err != nil:
			return background.RunID{}, err
		case again.Reply == postadjudication.Created:
			return again.Run, nil
		case again.Reply == postadjudication.Deduplicated:
			return background.RunID{}, alreadyActive(again.Run)
		case again.Reply == postadjudication.Superseded && !isOf(lineage, again.Run):
			return background.RunID{}, spec.Conflict(string(again.Reply), "another task with the same retry key took the place of this one", again.Run.String())
		}
	}
	return background.RunID{}, door.NewRefusal(http.StatusServiceUnavailable, "busy", "other requests changed the run meanwhile: try again").WithRetryAfter(1)
}

// isOf reports whether a run is of a lineage.
func isOf(l casestatus.Lineage, run background.RunID) bool {
	return slices.ContainsFunc(l.Runs, func(s casestatus.Status) bool { return s.Run == run })
}

func alreadyActive(run background.RunID) error {
	return spec.Conflict("run_already_active", "a run of this lineage is at work", run.String())
}

// forkRefusal returns the refusal of a fork by the state of its source, as OpenWOP's clients know it.
func (s *Server) forkRefusal(ctx context.Context, newest casestatus.Status, err error) error {
	var refused *refusal.RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	run := refused.ActiveRun
	if run.IsZero() {
		run = newest.Run
	}
	switch refused.Gate {
	case refusal.GateCaseEnded:
		return spec.Conflict("already_executed", "it was executed before: nothing is executed twice", run.String())
	case refusal.GateReconcileFirst:
		return spec.Conflict("reconcile_first", refused.Gate.Meaning(), newest.Run.String())
	case refusal.GateNotALetter, refusal.GateNotOpen, refusal.GateLive, refusal.GateRunning:
		of, err := s.Service.CaseByID(ctx, newest.Tenant, newest.Case)
		if err != nil {
			return err
		}
		if of.Progression.Ended() {
			return spec.Conflict("already_executed", "it was executed before: nothing is executed twice", run.String())
		}
		for _, other := range of.Runs {
			if other.State.Live() {
				return alreadyActive(other.Run)
			}
		}
	}
	return spec.Conflict(string(refused.Gate), refused.Gate.Meaning(), run.String())
}
