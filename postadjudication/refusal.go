package postadjudication

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// AccessRefusal says who was refused what by a face, and by which rule.
type AccessRefusal struct {
	Tenant string
	Actor  string
	Action string
	Rule   string
	// What was to be acted on, if it was named: a run, or a case. They may be anything
	// that somebody wrote.
	Run  background.RunID
	Case background.CaseID
}

// NoteRefusal leaves a receipt of a refusal: in the case of the run or in the case
// that was named, if the tenant has it, else in the tenant's register of refusals.
func (s *Service) NoteRefusal(ctx context.Context, r AccessRefusal) error {
	if err := errors.Join(named("tenant", r.Tenant, 128), named("actor", r.Actor, 128)); err != nil {
		return err
	}
	kase, run := r.Case, r.Run
	if !run.IsZero() {
		seen, err := s.letter(ctx, r.Tenant, run)
		switch {
		case errors.Is(err, ErrNotFound):
			run = background.RunID{}
		case err != nil:
			return err
		default:
			kase = seen.Case.ID
		}
	}
	return s.journal.NoteRefusal(ctx, r.Tenant, kase, run, receipts.Draft{
		Actor: r.Actor, At: s.now(), Payload: receipts.Payload{AskedFor: clean(r.Action, 64), RefusedBy: clean(r.Rule, 64)},
	})
}
