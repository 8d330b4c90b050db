package ojs

import (
	"fmt"
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
	dead, held := f.dead(key, "dead"), f.must(key, "/jobs", `{"type":"a.b","queue":"held","args":[]}`).Job.ID
	f.must(key, "/workers/fetch", `{"queues":["held"]}`)
	release := testkit.TakeTurns(t, "acme")
	var clients sync.WaitGroup
	var over atomic.Bool
	long := `"x":"` + strings.Repeat("4 ", 20<<10) + `"`
	for path, body := range map[string]string{
		"/jobs": `{"type":"a.b","args":[{` + long + `}]}`, "/workers/fetch": `{"queues":["none"],` + long + `}`, "/workers/ack": `{"job_id":"` + held + `",` + long + `}`,
		"/workers/nack": `{"job_id":"` + held + `","error":{},` + long + `}`, "/workers/heartbeat": `{"worker_id":"w",` + long + `}`,
		"/dead-letter/" + dead + "/retry": `{"override":{"meta":{` + long + `}}}`, "/dead-letter/retry": `{"filter":{"queue":"none"},` + long + `}`,
		"/dead-letter/replay-rules": `{"name":"r",` + long + `}`,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/ojs/v1"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		clients.Go(func() {
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			_ = a.Body.Close() // what it says does not matter
			if !over.Load() {
				t.Errorf("%s was answered without a turn: %d", path, a.StatusCode)
			}
		})
	}
	for i := range 50 {
		f.must(other, "/jobs", fmt.Sprintf(`{"type":"a.b","args":[%d]}`, i))
	}
	over.Store(true)
	release()
	clients.Wait()
}
