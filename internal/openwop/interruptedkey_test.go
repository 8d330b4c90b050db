package openwop

import (
	"net/http"
	"testing"
	"time"
)

// A key used again after its day is a new request, also if the first request with it was interrupted.
func TestAnInterruptedKeyIsFreeAfterItsDay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	const body = `{"workflowId":"chores"}`
	first := f.want(http.StatusCreated, key, "POST", "/v1/runs", body, "Idempotency-Key", "daily").run()
	f.finished(key, first)
	f.crash()
	f.clock.Advance(25 * time.Hour)
	if a := f.ask(key, "POST", "/v1/runs", body, "Idempotency-Key", "daily"); a.status != http.StatusCreated || a.run() == first {
		t.Errorf("%d %s, of the day before %s: %d runs", a.status, a.text, first, f.runs())
	}
}
