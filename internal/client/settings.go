package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Policies are the requests about retry policies.
type Policies struct{ *connection }

// versionsQuery returns the query for versions or entries after a number.
func versionsQuery(after int64, limit int) url.Values {
	return url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(limit)}}
}

func policyPath(family, verb string) string { return "/policies/" + url.PathEscape(family) + verb }

// List returns the policies of the families.
func (p Policies) List(ctx context.Context) ([]postadjudication.FamilyPolicy, error) {
	var out struct {
		Policies []postadjudication.FamilyPolicy `json:"policies"`
	}
	err := p.get(ctx, "/policies", nil, &out)
	return out.Policies, err
}

// History returns the versions of the policy of a family after version after.
func (p Policies) History(ctx context.Context, family string, after int64, limit int) ([]postadjudication.PolicyVersion, error) {
	var out struct {
		Versions []postadjudication.PolicyVersion `json:"versions"`
	}
	err := p.get(ctx, policyPath(family, "/history"), versionsQuery(after, limit), &out)
	return out.Versions, err
}

// Set changes the policy of new runs of a family.
func (p Policies) Set(ctx context.Context, q postadjudication.PolicyChange) (out postadjudication.FamilyPolicy, err error) {
	err = p.post(ctx, policyPath(q.Family, ""), struct {
		reasonBody
		Policy    retrypolicy.Policy `json:"policy"`
		IfVersion *int64             `json:"if_version,omitempty"`
	}{reasonBody{q.Reason}, q.Policy, q.IfVersion}, &out)
	return out, err
}

// Reset resets the policy of new runs of a family to the configured one.
func (p Policies) Reset(ctx context.Context, q postadjudication.PolicyReset) (out postadjudication.FamilyPolicy, err error) {
	err = p.post(ctx, policyPath(q.Family, "/reset"), struct {
		reasonBody
		IfVersion *int64 `json:"if_version,omitempty"`
	}{reasonBody{q.Reason}, q.IfVersion}, &out)
	return out, err
}

// People are the requests about how many people it takes to state or free money.
type People struct{ *connection }

// Get returns how many people it takes.
func (p People) Get(ctx context.Context) (out postadjudication.People, err error) {
	err = p.get(ctx, "/people", nil, &out)
	return out, err
}

// Set changes how many people it takes.
func (p People) Set(ctx context.Context, q postadjudication.PeopleChange) (out postadjudication.People, err error) {
	err = p.post(ctx, "/people", map[string]any{"people": q.People, "reason": q.Reason}, &out)
	return out, err
}

// History returns the changes after sequence number after.
func (p People) History(ctx context.Context, after int64, limit int) ([]postadjudication.PeopleVersion, error) {
	var out struct {
		Versions []postadjudication.PeopleVersion `json:"versions"`
	}
	err := p.get(ctx, "/people/history", versionsQuery(after, limit), &out)
	return out.Versions, err
}
