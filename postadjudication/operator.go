package postadjudication

import "errors"

// Operator reads and changes what belongs to one tenant, in the name of one actor. Every
// change and every refusal is recorded with that actor. See Service.As.
type Operator struct {
	DeadLetters   DeadLetters
	Bulk          Plans
	Rules         Rules
	Cases         TenantCases
	Breakers      TenantBreakers
	Policies      TenantPolicies
	People        TenantPeople
	Keys          TenantKeys
	OperationLogs TenantOperationLogs
}

// As returns what actor may do for tenant. Reading needs no actor. It sends nothing and can't
// fail: a name that is not allowed is refused by the methods.
func (s *Service) As(tenant, actor string) Operator {
	o := operator{s, tenant, actor}
	return Operator{
		DeadLetters: DeadLetters{Letters{o}, Reports{o}, Purges{o}}, Bulk: Plans{o}, Rules: Rules{o}, Cases: TenantCases{o}, Breakers: TenantBreakers{o},
		Policies: TenantPolicies{o}, People: TenantPeople{o}, Keys: TenantKeys{o}, OperationLogs: TenantOperationLogs{o},
	}
}

// operator is for whom, and in whose name, something is done.
type operator struct {
	s             *Service
	tenant, actor string
}

// checkChange refuses a change without a tenant, an actor or a reason: one *FieldError for
// each, joined.
func (o operator) checkChange(reason string) error {
	return errors.Join(requireIdentifier("tenant", o.tenant, 128), o.checkActor(reason))
}

// checkActor refuses a change without an actor or a reason. It is for changes of what is read
// first, since no tenant has what belongs to none.
func (o operator) checkActor(reason string) error {
	return errors.Join(requireIdentifier("actor", o.actor, 128), requireText("reason", reason, 1024))
}

// DeadLetters reads and changes the dead letters of a tenant.
type DeadLetters struct {
	Letters
	Reports
	Purges
}

// Letters lists, inspects and changes dead letters.
type Letters struct{ operator }

// Reports counts and groups dead letters.
type Reports struct{ operator }

// Purges purges dead letters before their retention ends.
type Purges struct{ operator }

// Plans plans what is done to many dead letters or cases, and runs the plans.
type Plans struct{ operator }

// Rules keeps the rules that replay dead letters.
type Rules struct{ operator }

// TenantCases lists the cases of a tenant and cancels runs.
type TenantCases struct{ operator }

// TenantBreakers opens and releases circuit breakers by hand.
type TenantBreakers struct{ operator }

// TenantPolicies keeps the retry policies of a tenant.
type TenantPolicies struct{ operator }

// TenantPeople keeps how many people a manual money decision takes.
type TenantPeople struct{ operator }

// TenantKeys creates, rotates and revokes access keys.
type TenantKeys struct{ operator }

// TenantOperationLogs reads the receipts of what was done to no case.
type TenantOperationLogs struct{ operator }
