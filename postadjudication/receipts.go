package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/trail"
	"github.com/recourse-dev/recourse/receipts"
)

// Receipts returns at most limit receipts of a tenant's case in order, beginning after the
// sequence number after (0 for the first).
func (s *Service) Receipts(ctx context.Context, tenant string, caseID background.CaseID, after int64, limit int) ([]receipts.Receipt, error) {
	return s.journal.Receipts.Trail(ctx, tenant, caseID, journal.TrailCursor{Case: caseID, Seq: after}, limit)
}

// AuditReader returns a reader of the service's database for package audit, on the connections
// of the service. It is valid until Close. An auditor without a Service uses audit.Open.
func (s *Service) AuditReader() audit.RowReader { return s.trail() }

func (s *Service) trail() *trail.Reader { return trail.New(s.journal.Reads()) }

// AuditQuery returns a query for audits of the tenants, or of all, by the configuration of this
// process.
func (s *Service) AuditQuery(tenants ...string) audit.Query {
	return audit.Query{Tenants: tenants, MaxRecoveries: s.maxRecoveries}
}

// Tenants returns all tenants that have anything, in order.
func (s *Service) Tenants(ctx context.Context) ([]string, error) { return s.trail().Tenants(ctx) }
