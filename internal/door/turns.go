package door

import (
	"context"

	"github.com/recourse-dev/recourse/internal/tenantlimit"
)

// longBody is the length in bytes from which reading a body waits for the tenant's turn.
const longBody = 2 << 10

// InTurn runs f, which reads what a body of so many bytes says: a long one in the tenant's turn at the processors, by
// tenantlimit.Processors, so that long bodies of one tenant do not block others. Its error is that of the context, if
// that ends before f runs.
func InTurn(ctx context.Context, tenant string, length int, f func()) error {
	if length < longBody {
		f()
		return nil
	}
	return tenantlimit.Processors().Do(ctx, tenant, f)
}
