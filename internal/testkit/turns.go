package testkit

import (
	"runtime"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/internal/tenantlimit"
)

// TakeTurns takes all turns of this process at the processors for a tenant, until release is called. A test that
// calls it is not parallel.
func TakeTurns(t testing.TB, tenant string) (release func()) {
	t.Helper()
	taken, over := make(chan struct{}), make(chan struct{})
	var holders sync.WaitGroup
	turns := max(1, runtime.GOMAXPROCS(0)/2) // as tenantlimit.Processors has them
	for range turns {
		holders.Go(func() {
			if err := tenantlimit.Processors().Do(t.Context(), tenant, func() { taken <- struct{}{}; <-over }); err != nil {
				t.Error(err)
			}
		})
	}
	for range turns {
		<-taken
	}
	return func() {
		close(over)
		holders.Wait()
	}
}
