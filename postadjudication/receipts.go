package postadjudication

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/trail"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Receipts returns at most limit receipts of a tenant's case in order, beginning after the
// sequence number after (0 for the first).
func (s *Service) Receipts(ctx context.Context, tenant string, caseID background.CaseID, after int64, limit int) ([]receipts.Receipt, error) {
	return s.journal.Receipts.Trail(ctx, tenant, caseID, journal.TrailCursor{Case: caseID, Seq: after}, limit)
}

// ReceiptFilter selects receipts of a tenant. A zero member selects all.
type ReceiptFilter struct {
	Actor   string
	Subtype receipts.Subtype
	Since   time.Time // at or after
	Until   time.Time // before
}

// Matches reports whether the filter selects a receipt.
func (f ReceiptFilter) Matches(r receipts.Receipt) bool {
	return (f.Actor == "" || r.Actor == f.Actor) && (f.Subtype == "" || r.Subtype == f.Subtype) &&
		(f.Since.IsZero() || !r.At.Before(f.Since)) && (f.Until.IsZero() || r.At.Before(f.Until))
}

// ReceiptsFound is a page of receipts of a tenant, over all its cases and its operation logs.
type ReceiptsFound struct {
	Receipts []receipts.Receipt
	Next     int64 // after of the next page
	Scanned  int   // number of receipts that were compared with the filter
	Complete bool  // no receipts are left
}

const (
	// maxReceiptScan is how many receipts one page compares with its filter.
	maxReceiptScan = 10_000
	// receiptsPerScan and maxFoundBytes bound what a page reads at once, and the bodies it has, but for the first.
	receiptsPerScan = 500
	maxFoundBytes   = 4 << 20
)

// FindReceipts returns at most limit receipts of a tenant that a filter selects, in the order of events, beginning after a
// position: 0, or Next of the page before. It compares at most 10,000 receipts with the filter: a page may have few
// receipts, or none, and not be Complete. A receipt has its place in the order some moments after it is written.
func (s *Service) FindReceipts(ctx context.Context, tenant string, f ReceiptFilter, after int64, limit int) (out ReceiptsFound, err error) {
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return out, &refusal.FieldError{Field: "until", Problem: "must be after since"}
	}
	out.Next = after
	for size := 0; out.Scanned < maxReceiptScan; {
		part, err := s.journal.Receipts.From(ctx, tenant, out.Next+1, receiptsPerScan)
		if err != nil {
			return out, err
		}
		for _, r := range part {
			if f.Matches(r.Receipt) {
				if size += len(r.Body); len(out.Receipts) == limit || size > maxFoundBytes && len(out.Receipts) > 0 {
					return out, nil
				}
				out.Receipts = append(out.Receipts, r.Receipt)
			}
			out.Next = r.Number
			out.Scanned++
		}
		if len(part) < receiptsPerScan {
			out.Complete = true
			break
		}
	}
	return out, nil
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
