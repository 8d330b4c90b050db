package ojs

import (
	"bytes"
	"net/url"
	"time"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
)

// purge answers DELETE /dead-letter.
func (s *Server) purge(q request) (answer, error) {
	return s.purgeBy(q, spec.ParsePurge)
}

// purgeByCommandLine answers POST /dead-letter/purge, which the public command line sends.
func (s *Server) purgeByCommandLine(q request) (answer, error) {
	return s.purgeBy(q, spec.ParseCommandLinePurge)
}

type parsePurge func(url.Values, time.Time) (spec.Filter, error)

func (s *Server) purgeBy(q request, parse parsePurge) (answer, error) {
	if body := bytes.TrimSpace(q.body); len(body) > 0 && string(body) != "{}" {
		return answer{}, spec.InvalidRequest("a purge takes its filter from the query, and has no body")
	}
	f, err := parse(q.URL.Query(), q.jobs.Now())
	if err != nil {
		return answer{}, err
	}
	done, err := s.run(q, bulk.Purge, f, reason("purge"))
	if err != nil {
		return answer{}, err
	}
	out := struct {
		Deleted int64  `json:"deleted"`
		Failed  int64  `json:"x_failed,omitempty"`
		PlanID  string `json:"x_plan_id,omitempty"`
	}{done.Progress.Done, failed(done), ""}
	if done.Items == 0 {
		return answer{body: marshal(out)}, nil
	}
	out.PlanID = done.ID.String()
	return answer{status: statusOfPlan(done), body: marshal(out)}, nil
}
