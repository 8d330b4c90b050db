package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/trail"
)

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
