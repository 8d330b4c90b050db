package receiptstest

import (
	"context"

	"github.com/recourse-dev/recourse/receipts"
)

// Log is a stored log of receipts as the suite sees it. All methods may be called concurrently.
type Log interface {
	// Append seals drafts behind the head of the case and stores them, adjacent and in the order given. The
	// first append to a case begins it and binds it to its tenant. On return without an error all are durable
	// and readable; with one, none is stored. It MUST refuse an empty tenant, a tenant other than the case's,
	// and whatever receipts.Seal refuses.
	Append(ctx context.Context, c receipts.CaseID, tenant string, drafts ...receipts.Draft) error

	// Read returns the receipts of a case by sequence, as they were stored, if the case is the tenant's. To
	// any other tenant, and to an empty one, the case looks as if it didn't exist: no receipts, whether
	// with an error or without. What it returns is the caller's to change.
	Read(ctx context.Context, tenant string, c receipts.CaseID) ([]receipts.Receipt, error)

	// TryRewrite tries to change a stored receipt, and then to delete it, in the most direct way that the
	// store's own user has. It returns nil if either was allowed, else the store's refusal.
	TryRewrite(ctx context.Context, c receipts.CaseID, seq int64) error
}
