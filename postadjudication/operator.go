package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// Operator reads and changes what belongs to one tenant, in the name of one actor. Every
// change and every refusal is recorded with that actor. See Service.As.
type Operator struct {
	DeadLetters   DeadLetters
	Jobs          jobs.Jobs // Config.Jobs
	Bulk          bulk.Plans
	Rules         replay.Rules
	Cases         TenantCases
	Breakers      TenantBreakers
	Policies      TenantPolicies
	People        TenantPeople
	Keys          TenantKeys
	Webhooks      webhooks.Webhooks // Config.Webhooks
	OperationLogs TenantOperationLogs
}

// As returns what actor may do for tenant. Reading needs no actor. It sends nothing and can't
// fail: a name that is not allowed is refused by the methods.
func (s *Service) As(tenant, actor string) Operator {
	o := operator{s, tenant, actor}
	letters := s.letters.As(tenant, actor)
	return Operator{
		DeadLetters: DeadLetters{letters, report.Of(s.letters, tenant), s.keeper.As(tenant), o},
		Jobs:        s.jobs.As(tenant, actor), Bulk: s.plans.As(tenant, actor), Rules: s.rules.As(tenant, actor), Cases: TenantCases{s.letters.Statuses.As(tenant), o}, Breakers: TenantBreakers{o},
		Policies: TenantPolicies{o}, People: TenantPeople{o}, Keys: TenantKeys{o}, Webhooks: s.webhooks.As(tenant, actor), OperationLogs: TenantOperationLogs{o},
	}
}

// StatsByTenant returns the statistics of the dead letters of each tenant that a filter selects, in the order of the
// tenants' names. They name no letter: who may see the sums of all tenants need not see a letter of one.
func (s *Service) StatsByTenant(ctx context.Context, f deadletter.Filter) ([]report.TenantStats, error) {
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	out := []report.TenantStats{}
	for _, tenant := range tenants {
		if tenant == AllTenants { // it has settings only
			continue
		}
		stats, err := s.As(tenant, "").DeadLetters.Stats(ctx, f)
		if err != nil {
			return nil, err
		}
		stats.Oldest = nil
		out = append(out, report.TenantStats{Tenant: tenant, Stats: stats})
	}
	return out, nil
}

// operator is for whom, and in whose name, something is done.
type operator struct {
	s             *Service
	tenant, actor string
}

// DeadLetters reads and changes the dead letters of a tenant, and rebuilds their index.
type DeadLetters struct {
	deadletter.Letters
	report.Reports
	retention.Schedule
	by operator
}

// TenantCases lists the cases of a tenant and cancels runs.
type TenantCases struct {
	casestatus.Cases
	operator
}

// TenantBreakers opens and releases circuit breakers by hand.
type TenantBreakers struct{ operator }

// TenantPolicies keeps the retry policies of a tenant.
type TenantPolicies struct{ operator }

// TenantPeople keeps how many people a manual money decision takes.
type TenantPeople struct{ operator }

// TenantKeys creates, rotates and revokes access keys.
type TenantKeys struct{ operator }

// TenantOperationLogs reads the operation logs of a tenant: the receipts about keys, webhooks, plans, the index of
// dead letters, and refusals that name no case.
type TenantOperationLogs struct{ operator }
