package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
)

// statuses is what a Service reports of runs and cases.
type statuses struct{ reader *casestatus.Reader }

// Status returns a run of a tenant by the id that Submit returned; Case finds runs by the caller's own id. Errors:
// refusal.ErrNotFound if the tenant has no such run, or the caller may not read it.
func (s statuses) Status(ctx context.Context, tenant string, id background.RunID) (casestatus.Status, error) {
	return s.reader.Status(ctx, tenant, id)
}

// Case returns the case of a tenant's transaction, the caller's own id, with the runs that the caller may read.
// Errors: refusal.ErrNotFound if there is none; *refusal.FieldError if no transaction can have the id.
func (s statuses) Case(ctx context.Context, tenant, transaction string) (casestatus.Case, error) {
	return s.reader.Case(ctx, tenant, transaction)
}

// CaseByID returns the status of a tenant's case, with the runs that the caller may read. refusal.ErrNotFound if the
// tenant has no such case, or the case has no such runs.
func (s statuses) CaseByID(ctx context.Context, tenant string, id background.CaseID) (casestatus.Case, error) {
	return s.reader.CaseByID(ctx, tenant, id)
}

// Lineage returns the lineage that a run of a tenant belongs to. Errors: refusal.ErrNotFound if the tenant has no
// such run.
func (s statuses) Lineage(ctx context.Context, tenant string, id background.RunID) (casestatus.Lineage, error) {
	return s.reader.Lineage(ctx, tenant, id)
}
