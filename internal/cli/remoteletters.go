package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// because is the body of a request that says no more than why.
type because struct {
	Reason string `json:"reason"`
}

func letterPath(run receipts.RunID, verb string) string {
	if verb != "" {
		verb = "/" + verb
	}
	return "/dead-letters/" + run.String() + verb
}

// queryOf writes a filter as the parameters of a query, which have the names of its
// members.
func queryOf(f postadjudication.LetterFilter) (url.Values, error) {
	text, err := f.Encode()
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	out := url.Values{}
	for name, value := range members {
		var word string
		if json.Unmarshal(value, &word) != nil {
			word = string(value) // a number, true or false
		}
		out.Set(name, word)
	}
	return out, nil
}

// paging asks for a page, in an order and behind a cursor where they are given.
func paging(query url.Values, limit int, sort, after string) {
	query.Set("limit", strconv.Itoa(limit))
	for name, word := range map[string]string{"sort": sort, "after": after} {
		if word != "" {
			query.Set(name, word)
		}
	}
}

func (s *server) Letters(ctx context.Context, q postadjudication.LetterQuery) (out postadjudication.LetterPage, err error) {
	query, err := queryOf(q.Filter)
	if err != nil {
		return out, err
	}
	paging(query, q.Limit, string(q.Sort), q.After)
	err = s.get(ctx, "/dead-letters", query, &out)
	return out, err
}

func (s *server) Count(ctx context.Context, f postadjudication.LetterFilter) (out postadjudication.LetterCount, err error) {
	query, err := queryOf(f)
	if err != nil {
		return out, err
	}
	err = s.get(ctx, "/dead-letters/count", query, &out)
	return out, err
}

func (s *server) Inspect(ctx context.Context, run receipts.RunID) (out postadjudication.Inspection, err error) {
	err = s.get(ctx, letterPath(run, ""), nil, &out)
	return out, err
}

func (s *server) Run(ctx context.Context, run receipts.RunID) (out postadjudication.Status, err error) {
	err = s.get(ctx, "/runs/"+run.String(), nil, &out)
	return out, err
}

func (s *server) Analyze(ctx context.Context, q postadjudication.AnalysisQuery) (out postadjudication.Analysis, err error) {
	query, err := queryOf(q.Filter)
	if err != nil {
		return out, err
	}
	query.Set("step", string(q.Step))
	query.Set("steps", strconv.Itoa(q.Steps))
	err = s.get(ctx, "/dead-letters/analysis", query, &out)
	return out, err
}

func (s *server) Groups(ctx context.Context, q postadjudication.GroupQuery) (out postadjudication.GroupPage, err error) {
	query, err := queryOf(q.Filter)
	if err != nil {
		return out, err
	}
	paging(query, q.Limit, string(q.Sort), q.After)
	err = s.get(ctx, "/dead-letters/groups", query, &out)
	return out, err
}

func (s *server) Stats(ctx context.Context, f postadjudication.LetterFilter) (out postadjudication.LetterStats, err error) {
	query, err := queryOf(f)
	if err != nil {
		return out, err
	}
	err = s.get(ctx, "/dead-letters/stats", query, &out)
	return out, err
}

func (s *server) Fork(ctx context.Context, run receipts.RunID, q postadjudication.ForkRequest) (out api.Forked, err error) {
	err = s.post(ctx, letterPath(run, "fork"), struct {
		because
		Policy any    `json:"policy,omitempty"`
		Queue  string `json:"queue,omitempty"`
	}{because{q.Reason}, sentPolicy(q), q.Queue}, &out)
	return out, err
}

// sentPolicy is a policy, or nothing at all.
func sentPolicy(q postadjudication.ForkRequest) any {
	if q.Policy == nil {
		return nil
	}
	return q.Policy
}

func (s *server) Retry(ctx context.Context, run receipts.RunID, reason string) (out api.Forked, err error) {
	err = s.post(ctx, letterPath(run, "retry"), because{reason}, &out)
	return out, err
}

func (s *server) Reconcile(ctx context.Context, run receipts.RunID, f postadjudication.Finding) (out postadjudication.CaseStatus, err error) {
	err = s.post(ctx, letterPath(run, "reconcile"), struct {
		because
		Finding   postadjudication.Class `json:"finding"`
		Moved     int64                  `json:"moved,omitempty"`
		Other     bool                   `json:"other_amount,omitempty"`
		Known     bool                   `json:"call_outstanding,omitempty"`
		Reference string                 `json:"reference"`
	}{because{f.Reason}, f.Class, f.Moved, f.OtherAmount, f.CallOutstanding, f.Reference}, &out)
	return out, err
}

func (s *server) Lookup(ctx context.Context, run receipts.RunID) (out postadjudication.CaseStatus, err error) {
	err = s.post(ctx, letterPath(run, "reconcile"), map[string]bool{"lookup": true}, &out)
	return out, err
}

func (s *server) Hold(ctx context.Context, run receipts.RunID, reason string) (out postadjudication.Desk, err error) {
	err = s.post(ctx, letterPath(run, "hold"), because{reason}, &out)
	return out, err
}

func (s *server) Release(ctx context.Context, run receipts.RunID, reason string) (out postadjudication.Desk, err error) {
	err = s.post(ctx, letterPath(run, "release"), because{reason}, &out)
	return out, err
}

func (s *server) Mark(ctx context.Context, run receipts.RunID, q postadjudication.MarkRequest) (out postadjudication.Desk, err error) {
	err = s.post(ctx, letterPath(run, "mark"), struct {
		because
		Reprocess *bool `json:"reprocess_eligible,omitempty"`
		Review    *bool `json:"manual_review_required,omitempty"`
	}{because{q.Reason}, q.ReprocessEligible, q.ManualReviewRequired}, &out)
	return out, err
}

// removing is the body of a request that removes letters, or plans to.
type removing struct {
	Filter  json.RawMessage `json:"filter,omitempty"`
	Family  string          `json:"family,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Confirm string          `json:"confirm,omitempty"`
}

func (s *server) PlanPurge(ctx context.Context, q postadjudication.PurgeRequest) (out postadjudication.PurgePlan, err error) {
	filter, err := q.Filter.Encode()
	if err != nil {
		return out, err
	}
	err = s.post(ctx, "/dead-letters/purge/plan", removing{Filter: filter}, &out)
	return out, err
}

func (s *server) Purge(ctx context.Context, q postadjudication.PurgeRequest) (out postadjudication.Purged, err error) {
	filter, err := q.Filter.Encode()
	if err != nil {
		return out, err
	}
	err = s.post(ctx, "/dead-letters/purge", removing{Filter: filter, Reason: q.Reason, Confirm: q.Confirm}, &out)
	return out, err
}

func (s *server) PlanClear(ctx context.Context, q postadjudication.ClearRequest) (out postadjudication.PurgePlan, err error) {
	err = s.post(ctx, "/dead-letters/clear/plan", removing{Family: q.Family}, &out)
	return out, err
}

func (s *server) Clear(ctx context.Context, q postadjudication.ClearRequest) (out postadjudication.Purged, err error) {
	err = s.post(ctx, "/dead-letters/clear", removing{Family: q.Family, Reason: q.Reason, Confirm: q.Confirm}, &out)
	return out, err
}
