package client

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"

	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/receipts"
)

// DeadLetters are the requests about dead letters.
type DeadLetters struct{ *connection }

func letterPath(run receipts.RunID, verb string) string {
	if verb != "" {
		verb = "/" + verb
	}
	return "/dead-letters/" + run.String() + verb
}

// filterQuery returns a filter as the parameters of a query. Parameters have the names of the
// filter's members.
func filterQuery(f deadletter.Filter) (url.Values, error) {
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

// addPaging adds the parameters of a page to a query. An empty sort or after is left out.
func addPaging(query url.Values, limit int, sort, after string) {
	query.Set("limit", strconv.Itoa(limit))
	addGiven(query, "sort", sort)
	addGiven(query, "after", after)
}

// addGiven adds a parameter to a query unless its value is empty.
func addGiven(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// List returns a page of the dead letters that a filter selects.
func (d DeadLetters) List(ctx context.Context, q deadletter.Query) (out deadletter.Page, err error) {
	query, err := filterQuery(q.Filter)
	if err != nil {
		return out, err
	}
	addPaging(query, q.Limit, string(q.Sort), q.After)
	err = d.get(ctx, "/dead-letters", query, &out)
	return out, err
}

// Count returns how many dead letters a filter selects.
func (d DeadLetters) Count(ctx context.Context, f deadletter.Filter) (out deadletter.Count, err error) {
	query, err := filterQuery(f)
	if err != nil {
		return out, err
	}
	err = d.get(ctx, "/dead-letters/count", query, &out)
	return out, err
}

// Search returns the dead letters that meet a condition, and how far the scan came.
func (d DeadLetters) Search(ctx context.Context, q deadletter.Search) (out deadletter.Found, err error) {
	query, err := filterQuery(q.Filter)
	if err != nil {
		return out, err
	}
	query.Set("where", q.Where)
	addPaging(query, q.Limit, string(q.Sort), q.After)
	err = d.get(ctx, "/dead-letters/search", query, &out)
	return out, err
}

// Inspect returns everything about a dead letter.
func (d DeadLetters) Inspect(ctx context.Context, run receipts.RunID) (out deadletter.Inspection, err error) {
	err = d.get(ctx, letterPath(run, ""), nil, &out)
	return out, err
}

// Analyze returns what the dead letters of a filter have in common.
func (d DeadLetters) Analyze(ctx context.Context, q report.Query) (out report.Analysis, err error) {
	query, err := filterQuery(q.Filter)
	if err != nil {
		return out, err
	}
	query.Set("step", string(q.Step))
	query.Set("steps", strconv.Itoa(q.Steps))
	err = d.get(ctx, "/dead-letters/analysis", query, &out)
	return out, err
}

// Groups returns a page of the causes of the dead letters of a filter.
func (d DeadLetters) Groups(ctx context.Context, q report.GroupQuery) (out report.GroupPage, err error) {
	query, err := filterQuery(q.Filter)
	if err != nil {
		return out, err
	}
	addPaging(query, q.Limit, string(q.Sort), q.After)
	err = d.get(ctx, "/dead-letters/groups", query, &out)
	return out, err
}

// Stats returns how many dead letters a filter selects, how old they are and their money.
func (d DeadLetters) Stats(ctx context.Context, f deadletter.Filter) (out report.Stats, err error) {
	query, err := filterQuery(f)
	if err != nil {
		return out, err
	}
	err = d.get(ctx, "/dead-letters/stats", query, &out)
	return out, err
}

// StatsByTenant is Stats of each tenant.
func (d DeadLetters) StatsByTenant(ctx context.Context, f deadletter.Filter) ([]report.TenantStats, error) {
	query, err := filterQuery(f)
	if err != nil {
		return nil, err
	}
	var out struct {
		Tenants []report.TenantStats `json:"tenants"`
	}
	err = d.get(ctx, "/dead-letters/stats/by-tenant", query, &out)
	return out.Tenants, err
}

// Retention returns how long the server keeps dead letters.
func (d DeadLetters) Retention(ctx context.Context) ([]retention.Effective, error) {
	var out struct {
		Retention []retention.Effective `json:"retention"`
	}
	err := d.get(ctx, "/retention", nil, &out)
	return out.Retention, err
}
