package jobs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/receipts"
)

// prunedCounts returns how many letters each round of retention says that it pruned.
func (f *fixture) prunedCounts() (out []int) {
	f.t.Helper()
	var bodies pq.StringArray
	if err := f.DB.QueryRow(`SELECT array_agg(body ORDER BY seq) FROM recourse.receipts WHERE subtype = 'letters-pruned'`).Scan(&bodies); err != nil {
		f.t.Fatal(err)
	}
	for _, body := range bodies {
		e, err := receipts.Parse([]byte(body))
		if err != nil {
			f.t.Fatal(err)
		}
		out = append(out, e.Payload.Letters)
	}
	return out
}

// A job leaves the dead letters when it is strictly older than the maximum age, without an announcement.
func TestRetentionTakesJobsThatAreStrictlyOlder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dead := f.mustDie()
	f.mustDie(func(j *jobs.Job) { j.Queue = "other" })
	p := f.NewPruner(withJobs)
	age := 180 * 24 * time.Hour
	p.FixAt(dead.DeadAt.Add(age)).MustPrune(retention.Report{})
	if _, err := f.Find(context.Background(), dead.ID); err != nil {
		t.Fatal(err)
	}
	p.FixAt(dead.DeadAt.Add(age + time.Microsecond)).MustPrune(retention.Report{Pruned: 1})
	if _, err := f.Find(context.Background(), dead.ID); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("the job is found: %v", err)
	}
	p.FixAt(dead.DeadAt.Add(age + time.Hour)).MustPrune(retention.Report{Pruned: 1})
	p.MustPrune(retention.Report{})
	if got := f.prunedCounts(); !slices.Equal(got, []int{1, 1}) {
		t.Errorf("rounds are recorded with %v", got)
	}
	f.wantSubtypes(dead, receipts.Submitted, receipts.AttemptStarted, receipts.DeadLettered, receipts.RetentionExpired)
	f.MustAudit()
}

// Of each queue the newest are kept. Queues, and tenants, do not count towards each other's limit.
func TestRetentionKeepsTheNewestOfEachQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var want []string
	for _, queue := range []string{"a", "b", "c"} { // all of a died before the first of c that is kept
		for n := range 4 {
			dead := f.mustDie(func(j *jobs.Job) { j.Queue = queue })
			if n >= 2 {
				want = append(want, dead.ID)
			}
		}
	}
	f.NewPruner(withJobs, func(c *postadjudication.Config) {
		c.Retention = []retention.Rule{{Family: jobs.Family, MaxCount: 2}, {Family: jobs.Family, Queue: "b", MaxCount: 3}}
	}).MustPrune(retention.Report{Pruned: 5})
	page, ids := f.mustList(jobs.Query{Limit: 10})
	if page.Total != 7 {
		t.Errorf("%d jobs are kept: %v", page.Total, ids)
	}
	for _, id := range want {
		if !slices.Contains(ids, id) {
			t.Errorf("%s, one of the newest, is gone", id)
		}
	}
	if got := f.prunedCounts(); !slices.Equal(got, []int{5}) {
		t.Errorf("the round is recorded with %v", got)
	}
	f.MustAudit()
}

// A queue whose letters are deleted leaves no copy in the archive.
func TestEachQueueHasItsPruningPolicy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, queue := range []string{"deleted", "archived", "other"} {
		f.mustDie(func(j *jobs.Job) { j.Queue = queue })
	}
	rules := []retention.Rule{
		{Family: jobs.Family, MaxAge: "PT1H"},
		{Family: jobs.Family, Queue: "deleted", MaxAge: "PT1H", Pruning: retention.Delete}, {Family: jobs.Family, Queue: "archived", MaxAge: "PT1H", Pruning: retention.ToArchive},
	}
	dir := t.TempDir()
	archive, err := retention.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pruner := f.NewPruner(withJobs, func(c *postadjudication.Config) { c.Retention, c.Archive = rules, archive })
	pruner.At(2 * time.Hour).MustPrune(retention.Report{Pruned: 3})
	var kept []string
	for letter, err := range pruner.As("acme", "ada").DeadLetters.Archived(t.Context(), jobs.Family) {
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, letter.Queue)
	}
	if slices.Sort(kept); !slices.Equal(kept, []string{"archived", "other"}) {
		t.Errorf("the archive has letters of %v", kept)
	}
	f.MustAudit()
}

// Tenants do not count towards each other's limit, in a queue of the same name.
func TestRetentionCountsEachTenantAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := &fixture{f.Rig, f.Rig.As("other", "service:shop").Jobs, t}
	prune := func(want int) {
		t.Helper()
		f.NewPruner(withJobs, func(c *postadjudication.Config) {
			c.Retention = []retention.Rule{{Family: jobs.Family, MaxCount: 2}}
		}).MustPrune(retention.Report{Pruned: want})
	}
	for range 2 {
		other.mustDie() // before the first of acme
		f.mustDie()
	}
	prune(0)
	f.mustDie()
	prune(1)
	other.mustDie()
	f.mustDie()
	prune(2)
	for tenant, one := range map[string]*fixture{"acme": f, "other": other} {
		if page, _ := one.mustList(jobs.Query{Limit: 10}); page.Total != 2 {
			t.Errorf("%s keeps %d", tenant, page.Total)
		}
	}
	f.MustAudit()
}

// A job on hold is not taken, and a retried one is none of those that are counted.
func TestRetentionTakesNoJobOnHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	held := f.mustDie()
	if _, err := f.Rig.As("acme", "user:ada").DeadLetters.Hold(context.Background(), held.Run, "evidence"); err != nil {
		t.Fatal(err)
	}
	p := f.NewPruner(withJobs)
	p.At(400 * 24 * time.Hour).MustPrune(retention.Report{})
	if err := f.Jobs.DeadLetters().Delete(context.Background(), held.ID, "no more"); !isGate(err, refusal.GateHeld) {
		t.Errorf("a job on hold is deleted: %v", err)
	}
	f.MustAudit()
}

func isGate(err error, gate refusal.Gate) bool {
	var refused *refusal.RefusedError
	return errors.As(err, &refused) && refused.Gate == gate
}
