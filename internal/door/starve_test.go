package door

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/tenantlimit"
)

// Two tenants whose reads take long must not keep a third from reading.
func TestTwoTenantsDoNotTakeAllReads(t *testing.T) {
	t.Parallel()
	d := &Door{reads: tenantlimit.New(maxReads, maxTenantReads), answerQuota: newQuota(maxProcessAnswerBytes, maxTenantAnswerBytes, 0)}
	release, held := make(chan struct{}), make(chan struct{}, 2*maxTenantReads)
	defer close(release)
	for _, tenant := range []string{"one", "two"} {
		for range maxTenantReads {
			go func() {
				_ = d.Read(context.Background(), tenant, func() { held <- struct{}{}; <-release })
			}()
		}
	}
	for range 2 * maxTenantReads {
		<-held
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := d.Read(ctx, "three", func() {}); err != nil {
		t.Errorf("a third tenant can't read while two tenants read: %v", err)
	}
}

// Bodies that never arrive must not keep other tenants from sending theirs.
func TestThreeTenantsDoNotTakeAllBatches(t *testing.T) {
	t.Parallel()
	d := &Door{batchQuota: newQuota(maxProcessBatchBytes, maxTenantBatchBytes, 0)}
	for n := range 3 {
		for range maxTenantBatchBytes >> 20 { // a chunked body of any length counts as 1 MiB at /ojs
			if _, err := d.AcquireBatch(Caller{Tenant: fmt.Sprint(n)}, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := d.AcquireBatch(Caller{Tenant: "other"}, 70<<10); err != nil {
		t.Errorf("a job of 70 KiB of another tenant: %v", err)
	}
}
