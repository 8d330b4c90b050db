package receiptstest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/recourse-dev/recourse/receipts"
)

// TestLog checks that the log given by open keeps what Log promises. It calls open once for each promise;
// the logs may share one store, because the suite works on cases and tenants of its own making.
func TestLog(t *testing.T, open func(t *testing.T) Log) {
	t.Helper()
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if err := p.check(t.Context(), open(t)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// promise is a check that returns an error for a broken promise, so that the suite itself can be tested on logs
// that break one.
type promise struct {
	name  string
	check func(ctx context.Context, log Log) error
}

var promises = []promise{
	{"appends continue one chain", appendsContinueOneChain},
	{"concurrent appends leave no gap", concurrentAppendsLeaveNoGaps},
	{"bodies are stored to the byte", bodiesAreStoredToTheByte},
	{"what is read belongs to the reader", readsAreCopies},
	{"a refused append stores nothing", refusedAppendStoresNothing},
	{"an ended context is answered truly", endedContextIsReported},
	{"a tenant sees only its own", tenantSeesOnlyItsOwn},
	{"no tenant sees nothing", noTenantSeesNothing},
	{"a case keeps its tenant", caseKeepsItsTenant},
	{"rewriting is refused", rewritingIsRefused},
}

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newID() (id [16]byte) {
	rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return id
}

func newTenant() string { return fmt.Sprintf("tenant-%x", newID()) }

// draft is a plain receipt that a reader can tell from others by its reference.
func draft(run receipts.RunID, reference string) receipts.Draft {
	return receipts.Draft{
		Run: run, Subtype: receipts.AttemptStarted, Actor: "suite", At: at,
		Payload: receipts.Payload{Attempt: 1, Reference: reference},
	}
}

// readVerified reads a case and returns its receipts if there are want of them and they verify.
func readVerified(ctx context.Context, log Log, tenant string, c receipts.CaseID, want int) ([]receipts.Receipt, error) {
	rs, err := log.Read(ctx, tenant, c)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if len(rs) != want {
		return nil, fmt.Errorf("%d receipts, want %d", len(rs), want)
	}
	if _, err := (receipts.Verifier{}).Verify(c, rs); err != nil {
		return nil, err
	}
	return rs, nil
}

// unchanged checks that a case still reads as it did before.
func unchanged(ctx context.Context, log Log, tenant string, c receipts.CaseID, before []receipts.Receipt) error {
	after, err := readVerified(ctx, log, tenant, c, len(before))
	if err != nil {
		return err
	}
	if diff := cmp.Diff(before, after); diff != "" {
		return errors.New("receipts changed:\n" + diff)
	}
	return nil
}

// startCase starts a case with n receipts, appended one by one.
func startCase(ctx context.Context, log Log, tenant string, n int) (receipts.CaseID, []receipts.Receipt, error) {
	c, run := receipts.CaseID(newID()), receipts.RunID(newID())
	for i := range n {
		if err := log.Append(ctx, c, tenant, draft(run, fmt.Sprint(i))); err != nil {
			return c, nil, fmt.Errorf("append: %w", err)
		}
	}
	rs, err := readVerified(ctx, log, tenant, c, n)
	return c, rs, err
}

// Log is a stored log of receipts as the suite sees it. All methods may be called concurrently.
type Log interface {
	// Append chains drafts behind the head of the case and stores them, adjacent and in the order given. The
	// first append to a case begins it and binds it to its tenant. On return without an error all are durable
	// and readable; with one, none is stored. It MUST refuse an empty tenant, a tenant other than the case's,
	// and whatever receipts.Chain refuses.
	Append(ctx context.Context, c receipts.CaseID, tenant string, drafts ...receipts.Draft) error

	// Read returns the receipts of a case by sequence, as they were stored, if the case is the tenant's. To
	// any other tenant, and to an empty one, the case looks as if it didn't exist: no receipts, whether
	// with an error or without. The caller may change the result.
	Read(ctx context.Context, tenant string, c receipts.CaseID) ([]receipts.Receipt, error)

	// TryRewrite tries to change a stored receipt, and then to delete it, in the most direct way that the
	// store's own user has. It returns nil if either was allowed, else the store's refusal.
	TryRewrite(ctx context.Context, c receipts.CaseID, seq int64) error
}
