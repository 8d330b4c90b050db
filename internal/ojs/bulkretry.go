package ojs

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

const (
	// bulkWait is how long a request waits for its plan. A plan that takes longer is answered with 202.
	bulkWait = 20 * time.Second
	// bulkErrors bounds the failures that an answer names.
	bulkErrors = 100
)

// bulkRetry answers POST /dead-letter/retry.
func (s *Server) bulkRetry(q request) (answer, error) {
	f, err := parsed(q, spec.ParseBulkRetry)
	if err != nil {
		return answer{}, err
	}
	done, err := s.run(q, bulk.Fork, f, reason("bulk retry"))
	if err != nil {
		return answer{}, err
	}
	type failure struct {
		JobID string `json:"job_id"`
		Error string `json:"error"`
	}
	out := struct {
		Action       string    `json:"action"`
		Matched      int64     `json:"matched"`
		Succeeded    int64     `json:"succeeded"`
		Failed       int64     `json:"failed"`
		Errors       []failure `json:"errors"`
		Retried      int64     `json:"retried"`
		TotalMatched int64     `json:"total_matched"`
		PlanID       string    `json:"x_plan_id,omitempty"`
		State        string    `json:"x_plan_state,omitempty"`
	}{
		Action: "retry", Matched: done.Items, Succeeded: done.Progress.Done, Failed: failed(done), Errors: []failure{}, Retried: done.Progress.Done, TotalMatched: done.Items,
	}
	if done.Items == 0 {
		return answer{body: marshal(out)}, nil
	}
	out.PlanID, out.State = done.ID.String(), string(done.State)
	if failed(done) > 0 {
		err := eachFailure(q, s.service.As(q.caller.Tenant, "").Bulk, done, func(item bulk.Item) {
			out.Errors = append(out.Errors, failure{strings.TrimPrefix(item.Subject, jobs.Family+":"), errorOf(item)})
		})
		if err != nil {
			return answer{}, err
		}
	}
	return answer{status: statusOfPlan(done), body: marshal(out)}, nil
}

func failed(p bulk.Plan) int64 { return p.Progress.Refused + p.Progress.Failed + p.Progress.PlanStale }

// statusOfPlan is 202 for a plan that has not ended.
func statusOfPlan(p bulk.Plan) int {
	if p.State == bulk.Done {
		return http.StatusOK
	}
	return http.StatusAccepted
}

// eachFailure calls f for the items of a plan that failed, at most bulkErrors.
func eachFailure(q request, plans bulk.Plans, p bulk.Plan, f func(bulk.Item)) error {
	left := bulkErrors
	for _, outcome := range []bulk.Outcome{bulk.OutcomeRefused, bulk.OutcomePlanStale, bulk.OutcomeFailed} {
		page, err := plans.Items(q.Context(), p.ID, string(outcome), "", bulkErrors)
		if err != nil {
			return err
		}
		for _, item := range page.Items[:min(left, len(page.Items))] {
			f(item)
			left--
		}
	}
	return nil
}

// errorOf says why an item of a plan failed.
func errorOf(item bulk.Item) string {
	switch {
	case item.Error != "":
		return item.Error
	case item.Gate != "":
		return string(item.Gate) + ": " + item.Gate.Meaning()
	}
	return string(item.Outcome)
}

// run plans an action on dead letters, runs the plan, and waits for its end. Of a filter that selects
// nothing it returns no plan.
func (s *Server) run(q request, action bulk.Action, f spec.Filter, reason string) (bulk.Plan, error) {
	plans := s.service.As(q.caller.Tenant, q.caller.Principal).Bulk
	planned, err := plans.Plan(q.Context(), bulk.Request{Action: action, Filter: filterOf(f).Letters(), Reason: reason, Request: door.RequestID(q.Context())})
	var nothing *bulk.NothingSelectedError
	if errors.As(err, &nothing) {
		return bulk.Plan{}, nil
	}
	if err != nil {
		return bulk.Plan{}, err
	}
	if planned, err = plans.Run(q.Context(), planned.ID, planned.Hash); err != nil {
		return planned, err
	}
	ctx, cancel := context.WithTimeout(q.Context(), bulkWait)
	defer cancel()
	for pause := 5 * time.Millisecond; planned.State == bulk.Running; pause = min(2*pause, 200*time.Millisecond) {
		select {
		case <-ctx.Done():
			return planned, q.Context().Err()
		case <-s.door.Stopping().Done():
			return planned, nil
		case <-time.After(pause):
		}
		if planned, err = plans.Get(q.Context(), planned.ID); err != nil {
			return planned, err
		}
	}
	return planned, nil
}
