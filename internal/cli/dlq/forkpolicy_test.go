package dlq_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// payingExecutor is an escrow service that this test never calls.
type payingExecutor struct{}

func (payingExecutor) KeyLifetime() time.Duration { return escrow.Forever }

func (payingExecutor) Execute(_ context.Context, c escrow.Call) escrow.Answer {
	return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor}
}

// makeTaskLetter makes a dead letter of another family, and returns its queue.
func (o *operator) makeTaskLetter() string {
	o.T.Helper()
	s, err := postadjudication.Open(o.T.Context(), postadjudication.Config{
		DatabaseURL: o.URL, Redis: o.Redis(),
		Executor: payingExecutor{}, Demonstration: true, Families: []postadjudication.PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: background.NotExecuted, Failure: &background.Failure{Type: "chore.failed"}}
		}}},
	})
	if err != nil {
		o.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(o.T.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	if _, err := s.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: "sweep"}); err != nil {
		o.T.Fatal(err)
	}
	queue := ""
	for queue == "" { // bounded by the time limit of go test
		for _, l := range o.mustRun("auditor", "list", "--family", "chores")["letters"].([]any) {
			queue = l.(map[string]any)["queue"].(string)
		}
	}
	stop()
	if err := <-ran; err != nil {
		o.T.Error(err)
	}
	if err := s.Close(); err != nil {
		o.T.Error(err)
	}
	return queue
}

// Forks take the policy of their own family, never of another one.
func TestForksAreGivenThePolicyOfTheirOwnFamily(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.OnePerson()
	_, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	o := &operator{Environment: p}
	o.makeRefused(1, `"refused"`)
	stop()
	plan := func(args ...string) map[string]any {
		made := o.mustRun("operator", append(args, "--yes", "--detach", "--reason", "mended")...)
		o.mustRun("operator", "bulk", "cancel", made["id"].(string), "--reason", "it was only looked at")
		return made
	}
	policy := func(plan map[string]any) string { return plan["asked"].(map[string]any)["policy"].(string) }
	if all := plan("fork", "--all", "--max-attempts", "4"); all["items"] != 1.0 || !strings.Contains(policy(all), `"max_retry_attempts":4`) || planFamily(all) != "settlement" {
		t.Errorf("where there are only settlements: %v", all)
	}
	queue := o.makeTaskLetter()
	for order, flag := range map[string]string{
		"fork --all --max-attempts 4":                     "--max-attempts needs --family",
		"fork --filter attempts>0 --jitter 0.5":           "--jitter needs --family",
		"retry --all --force --max-retries 4":             "--max-retries needs --family",
		"fork --max-attempts 4 --from-queue " + queue:     "changes the policy of chores",
		"retry --max-retries 4 --queue " + queue:          "changes the policy of chores",
		"fork --all --family chores --max-attempts 4":     "--all and a filter",
		"fork --family chores --base-delay 1s --jitter 1": "--base-delay changes the policy of chores",
	} {
		o.dlq("operator", append(strings.Fields(order), "--yes", "--reason", "mended")...).Check(t, order, 2, flag)
	}
	o.dlq("operator", "bulk", "plan", "fork", "--all", "--max-retries", "4", "--reason", "mended").Check(t, "bulk plan", 2, "--max-retries needs --family")
	set := p.Run("", "policy", "set", "--family", "chores", "--tenant", "acme", "--actor", "root", "--reason", "slowly", "--base-delay", "7s", "--max-delay", "9s")
	set.Check(t, "policy set", 0, "")
	o.dlq("operator", "fork", "--family", "chores", "--yes", "--detach", "--reason", "mended").Check(t, "while nobody runs the family", 1, "1 letter refused")
	// A process that has the family but works on no plan.
	o.Exec(`INSERT INTO recourse.sessions (id, worker, started_at, beat_at, queues) VALUES (gen_random_uuid(), 'chores', now(), now() + interval '1 hour', '{chores:0,chores:1}')`)
	for _, which := range [][]string{{"--from-queue", queue}, {"--family", "chores"}} {
		made := plan(append([]string{"fork", "--max-attempts", "4"}, which...)...)
		if got := policy(made); made["items"] != 1.0 || planFamily(made) != "chores" || !strings.Contains(got, `"max_retry_attempts":4`) || !strings.Contains(got, `7s`) {
			t.Errorf("%v: %v", which, made)
		}
	}
	if own := plan("fork", "--family", "settlement", "--max-attempts", "5"); own["items"] != 1.0 || strings.Contains(policy(own), `7s`) {
		t.Errorf("%v", own)
	}
	if kept := plan("fork", "--all"); kept["items"] != 2.0 || kept["asked"].(map[string]any)["policy"] != nil {
		t.Errorf("without a policy: %v", kept)
	}
}

func planFamily(plan map[string]any) any {
	return plan["asked"].(map[string]any)["filter"].(map[string]any)["family"]
}
