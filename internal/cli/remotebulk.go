package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func bulkPath(id uuid.UUID, verb string) string { return "/bulk/" + id.String() + verb }

func (s *server) PlanBulk(ctx context.Context, q postadjudication.BulkRequest) (out postadjudication.Bulk, err error) {
	body := struct {
		because
		Action    postadjudication.BulkAction `json:"action"`
		Filter    json.RawMessage             `json:"filter,omitempty"`
		Where     string                      `json:"where,omitempty"`
		All       bool                        `json:"all,omitempty"`
		Policy    *retrypolicy.Policy         `json:"policy,omitempty"`
		Queue     string                      `json:"queue,omitempty"`
		Reprocess *bool                       `json:"reprocess_eligible,omitempty"`
		Review    *bool                       `json:"manual_review_required,omitempty"`
		Limit     int64                       `json:"limit,omitempty"`
		Parallel  int                         `json:"parallel,omitempty"`
		Throttle  int                         `json:"throttle,omitempty"`
	}{because{q.Reason}, q.Action, nil, q.Where, q.All, q.Policy, q.Queue, q.Reprocess, q.Review, q.Limit, q.Parallel, q.Throttle}
	if body.Filter, err = q.Filter.Encode(); err != nil {
		return out, err
	}
	err = s.post(ctx, "/bulk", body, &out)
	return out, err
}

func (s *server) RunBulk(ctx context.Context, id uuid.UUID, hash string, alone *postadjudication.BreakGlass) (out postadjudication.Bulk, err error) {
	body := map[string]string{"hash": hash}
	if alone != nil {
		body["break_glass"], body["reason"] = alone.Incident, alone.Reason
	}
	err = s.post(ctx, bulkPath(id, "/run"), body, &out)
	return out, err
}

func (s *server) TurnBulk(ctx context.Context, id uuid.UUID, turn bulkTurn, reason string) (out postadjudication.Bulk, err error) {
	err = s.post(ctx, bulkPath(id, "/"+string(turn)), because{reason}, &out)
	return out, err
}

func (s *server) Bulk(ctx context.Context, id uuid.UUID) (out postadjudication.Bulk, err error) {
	err = s.get(ctx, bulkPath(id, ""), nil, &out)
	return out, err
}

func (s *server) Bulks(ctx context.Context, after string) (out postadjudication.BulkPage, err error) {
	query := url.Values{}
	if after != "" {
		query.Set("after", after)
	}
	err = s.get(ctx, "/bulk", query, &out)
	return out, err
}

func (s *server) BulkItems(ctx context.Context, id uuid.UUID, outcome, after string, limit int) (out postadjudication.BulkItemPage, err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	for name, word := range map[string]string{"outcome": outcome, "after": after} {
		if word != "" {
			query.Set(name, word)
		}
	}
	err = s.get(ctx, bulkPath(id, "/items"), query, &out)
	return out, err
}
