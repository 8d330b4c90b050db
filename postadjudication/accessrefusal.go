package postadjudication

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// AccessRefusal is a refusal by an API or command line: who was refused which action by which rule.
type AccessRefusal struct {
	Tenant string
	Actor  string
	Action string
	Code   string
	// The run or case of the action, if it was named. Both are unchecked input: they may not
	// exist or be another tenant's.
	Run  background.RunID
	Case background.CaseID
}

// RecordRefusal writes a receipt of a refusal: to the case of Run or to Case if the tenant
// has it, else to the tenant's log of refusals. Errors: a *FieldError for bad input.
func (s *Service) RecordRefusal(ctx context.Context, r AccessRefusal) error {
	if err := errors.Join(validate.KnownID("tenant", r.Tenant, 128), validate.Identifier("actor", r.Actor, 128)); err != nil {
		return err
	}
	caseID, run := r.Case, r.Run
	if !run.IsZero() {
		seen, err := s.applier.OwnRun(ctx, r.Tenant, run)
		switch {
		case errors.Is(err, refusal.ErrNotFound):
			run = background.RunID{}
		case err != nil:
			return err
		default:
			caseID = seen.Case.ID
		}
	}
	return s.journal.Operations.RecordRefusal(ctx, r.Tenant, caseID, run, receipts.Draft{
		Actor: r.Actor, At: s.now(), Payload: receipts.Payload{AskedFor: validate.Clean(r.Action, 64), RefusedBy: validate.Clean(r.Code, 64)},
	})
}
