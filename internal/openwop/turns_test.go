package openwop

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// Long bodies of a tenant wait for their turn at the processors, and short ones of another tenant do not wait behind
// them. It takes all turns of the process, and so is not parallel.
func TestLongBodiesWaitForTheirTurn(t *testing.T) {
	f := newFixture(t)
	key, other := f.all("acme"), f.all("other")
	release := testkit.TakeTurns(t, "acme")
	var clients sync.WaitGroup
	var over atomic.Bool
	long := strings.Repeat("4 ", 20<<10)
	for _, body := range []string{`{"workflowId":"none","inputs":{"x":"` + long + `"}}`, `{"workflowId":"settlement","inputs":{"x":"` + long + `"}}`, `{"workflowId":"chores","inputs":{"x":"` + long + `"}}`} {
		clients.Go(func() {
			a, err := f.send(f.url, key, http.MethodPost, "/v1/runs", body)
			if err != nil {
				t.Error(err)
			}
			if !over.Load() {
				t.Errorf("%.40s was answered without a turn: %d", body, a.status)
			}
		})
	}
	for range 50 {
		f.create(other, `{"workflowId":"chores"}`)
	}
	over.Store(true)
	release()
	clients.Wait()
}
