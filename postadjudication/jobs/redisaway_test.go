package jobs_test

import (
	"context"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Jobs need no Redis: it is killed once the service is open, and every step of a job is made.
func TestJobsAreDoneWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server, redis := testkit.Redis(t)
	r := rig.Join(t, testkit.Migrated(t), redis, rig.NewEscrow(), withJobs)
	f := &fixture{r, r.As("acme", "service:shop").Jobs, t}
	ctx := context.Background()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	s := f.mustEnqueue(attempts(1, retrypolicy.DeadLetter))
	f.mustFetch(s)
	if dead, err := f.Nack(ctx, by(s), refused, true, 0); err != nil || dead.State != background.DeadLettered {
		t.Fatalf("%+v, %v", dead, err)
	}
	if page, err := f.Jobs.DeadLetters().List(ctx, jobs.Query{Limit: 10}); err != nil || len(page.Jobs) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if again, err := f.Jobs.DeadLetters().Retry(ctx, s.ID, jobs.Retry{Reason: "the mailbox has room"}); err != nil || again.Attempt != 0 {
		t.Fatalf("%+v, %v", again, err)
	}
	f.mustFetch(s)
	if done, err := f.Ack(ctx, by(s), nil); err != nil || done.State != background.Succeeded {
		t.Errorf("%+v, %v", done, err)
	}
	f.MustAudit()
}
