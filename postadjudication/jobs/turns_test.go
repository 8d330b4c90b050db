package jobs_test

import (
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// Secrets in long payloads are sought in the tenant's turn at the processors. It takes all turns of the process, and
// so is not parallel.
func TestSecretsInLongPayloadsAreSoughtInTurn(t *testing.T) {
	f := newFixture(t)
	dead := f.mustDie()
	release := testkit.TakeTurns(t, "acme")
	var running sync.WaitGroup
	long := json.RawMessage(`{"args":["` + strings.Repeat("4 ", 2<<10) + `"]}`)
	var over atomic.Bool
	for what, do := range map[string]func() error{
		"a job": func() error {
			_, err := f.Enqueue(t.Context(), newJob(func(j *jobs.Job) { j.Payload = long }))
			return err
		},
		"a retry": func() error {
			_, err := f.Jobs.DeadLetters().Retry(t.Context(), dead.ID, jobs.Retry{Reason: "changed", Payload: long})
			return err
		},
	} {
		running.Go(func() {
			if err := do(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if !over.Load() {
				t.Errorf("%s was read without a turn", what)
			}
		})
	}
	for range 50 {
		f.mustEnqueue()
	}
	over.Store(true)
	release()
	running.Wait()
}
