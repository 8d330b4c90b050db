package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// mustList returns the ids of a page, and checks that each job is as Find has it.
func (f *fixture) mustList(q jobs.Query) (jobs.Page, []string) {
	f.t.Helper()
	page, err := f.Jobs.DeadLetters().List(context.Background(), q)
	if err != nil {
		f.t.Fatal(err)
	}
	var ids []string
	for _, listed := range page.Jobs {
		ids = append(ids, listed.ID)
		found := f.mustFind(listed.ID)
		if !reflect.DeepEqual(listed, found) {
			f.t.Errorf("listed %+v\nfound %+v", listed, found)
		}
	}
	return page, ids
}

func TestDeadLettersAreListedByTheirFilter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	kind := func(queue, jobType string) func(*jobs.Job) {
		return func(j *jobs.Job) { j.Queue, j.Type = queue, jobType }
	}
	a := f.mustDie(kind("q1", "mail.send"))
	b := f.mustDie(kind("q2", "mail.check"))
	c := f.mustDie(kind("q1", "report.make"))
	f.mustEnqueue(kind("q3", "mail.send")) // alive
	for name, test := range map[string]struct {
		filter jobs.Filter
		want   []string
	}{
		"all":             {jobs.Filter{}, []string{c.ID, b.ID, a.ID}},
		"queue":           {jobs.Filter{Queue: "q1"}, []string{c.ID, a.ID}},
		"type":            {jobs.Filter{Type: "mail.send"}, []string{a.ID}},
		"prefix":          {jobs.Filter{Type: "mail.*"}, []string{b.ID, a.ID}},
		"error type":      {jobs.Filter{ErrorType: "SmtpError"}, []string{c.ID, b.ID, a.ID}},
		"no such error":   {jobs.Filter{ErrorType: "smtperror"}, nil},
		"since inclusive": {jobs.Filter{Since: b.DeadAt}, []string{c.ID, b.ID}},
		"until exclusive": {jobs.Filter{Until: b.DeadAt}, []string{a.ID}},
		"all of them":     {jobs.Filter{Queue: "q1", Type: "mail.*", Since: a.DeadAt, Until: b.DeadAt}, []string{a.ID}},
	} {
		page, ids := f.mustList(jobs.Query{Filter: test.filter, Limit: 10})
		if !slices.Equal(ids, test.want) || page.Total != int64(len(test.want)) || page.Next != "" {
			t.Errorf("%s: %v of %d, want %v", name, ids, page.Total, test.want)
		}
	}
	first, ids := f.mustList(jobs.Query{Limit: 2})
	if !slices.Equal(ids, []string{c.ID, b.ID}) || first.Total != 3 || first.Next == "" {
		t.Errorf("%v, %+v", ids, first)
	}
	f.mustDie(kind("q1", "mail.send")) // between the pages
	if rest, ids := f.mustList(jobs.Query{Limit: 2, After: first.Next}); !slices.Equal(ids, []string{a.ID}) || rest.Next != "" {
		t.Errorf("%v, %+v", ids, rest)
	}
	if _, ids := f.mustList(jobs.Query{Limit: 2, Offset: 2}); !slices.Equal(ids, []string{b.ID, a.ID}) {
		t.Errorf("%v", ids)
	}
	if page, ids := f.mustList(jobs.Query{Limit: 2, Offset: 1 << 40}); len(ids) != 0 || page.Total != 4 || page.Next != "" {
		t.Errorf("%v, %+v", ids, page)
	}
	var field *refusal.FieldError
	for name, q := range map[string]jobs.Query{"limit": {}, "offset": {Limit: 1, Offset: -1}, "after": {Limit: 1, After: "x"}} {
		if _, err := f.Jobs.DeadLetters().List(context.Background(), q); !errors.As(err, &field) || field.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A page of large envelopes ends early, and the next one goes on where it ended.
func TestAPageIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	large := json.RawMessage(`{"args":["` + strings.Repeat("x", 1<<20) + `"]}`)
	var want []string
	for range 11 {
		want = append(want, f.mustDie(func(j *jobs.Job) { j.Payload = large }).ID)
	}
	slices.Reverse(want)
	var got []string
	pages := 0
	for after := ""; ; pages++ {
		page, err := f.Jobs.DeadLetters().List(context.Background(), jobs.Query{Limit: 100, After: after})
		if err != nil || len(page.Jobs) > 8 {
			t.Fatalf("%d jobs, %v", len(page.Jobs), err)
		}
		for _, s := range page.Jobs {
			got = append(got, s.ID)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if !slices.Equal(got, want) || pages != 1 {
		t.Errorf("%d pages: %v, want %v", pages+1, got, want)
	}
}

// Pages whose halves are read at the same time have every job once and in order, also where the first
// half, the second or both end early.
func TestPagesInHalvesHaveEveryJobInOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	large := json.RawMessage(`{"args":["` + strings.Repeat("x", 1<<20) + `"]}`)
	const many = 72
	isLarge := func(n int) bool { return n < 8 || n%36 > 28 }
	var want []string
	for n := range many {
		want = append(want, f.mustDie(func(j *jobs.Job) {
			if isLarge(n) {
				j.Payload = large
			}
		}).ID)
	}
	slices.Reverse(want)
	for _, limit := range []int{32, 33, many, 100} {
		var got []string
		early := 0
		for after := ""; ; {
			page, err := f.Jobs.DeadLetters().List(context.Background(), jobs.Query{Limit: limit, After: after})
			if err != nil || page.Total != many || len(page.Jobs) == 0 {
				t.Fatalf("%d jobs of %d, %v", len(page.Jobs), page.Total, err)
			}
			for _, s := range page.Jobs {
				got = append(got, s.ID)
			}
			if after = page.Next; after == "" {
				break
			}
			if len(page.Jobs) < limit {
				early++
			}
		}
		if !slices.Equal(got, want) || early == 0 {
			t.Errorf("limit %d, %d pages that ended early: %v, want %v", limit, early, got, want)
		}
	}
}

// A list shows the newest attempts of a job that has very many.
func TestAListShowsTheNewestOfALongHistory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	const tries = 60
	job := f.mustEnqueue(func(j *jobs.Job) {
		j.Policy = retrypolicy.Policy{MaxRetryAttempts: tries, BaseDelay: time.Microsecond, MaxDelay: time.Microsecond, OnExhaustion: retrypolicy.DeadLetter}
	})
	failAll := func() {
		for n := 0; n < tries; {
			got, err := f.Fetch(ctx, jobs.Fetch{Queues: []string{mail}, Count: 1})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 1 {
				if _, err := f.Nack(ctx, jobs.Answer{ID: job.ID}, refused, true, background.EndByPolicy); err != nil {
					t.Fatal(err)
				}
				n++
			}
		}
	}
	failAll()
	if _, err := f.Jobs.DeadLetters().Retry(ctx, job.ID, again); err != nil {
		t.Fatal(err)
	}
	failAll()
	all := f.mustFind(job.ID)
	page, err := f.Jobs.DeadLetters().List(ctx, jobs.Query{Limit: 1})
	if err != nil || len(page.Jobs) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	listed := page.Jobs[0]
	if newest := all.Failures[len(all.Failures)-len(listed.Failures):]; len(all.Failures) != 2*tries || len(listed.Failures) < 40 || fmt.Sprint(listed.Failures) != fmt.Sprint(newest) {
		t.Errorf("%d of %d failures:\n%v\n%v", len(listed.Failures), len(all.Failures), listed.Failures, newest)
	}
	if !listed.CreatedAt.Equal(all.CreatedAt) || !listed.EnqueuedAt.Equal(all.EnqueuedAt) || !listed.EndedAt.Equal(all.EndedAt) {
		t.Errorf("%+v\n%+v", listed, all)
	}
}

func TestStatsOfDeadLettersAgreeWithTheList(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	if stats, err := f.Jobs.DeadLetters().Stats(ctx); err != nil || stats.Total != 0 || !stats.OldestAt.IsZero() || stats.MaxAge != 180*24*time.Hour {
		t.Errorf("%+v, %v", stats, err)
	}
	a := f.mustDie(func(j *jobs.Job) { j.Queue = "q1" })
	b := f.mustDie(func(j *jobs.Job) { j.Queue, j.Type = "q2", "report.make" })
	stats, err := f.Jobs.DeadLetters().Stats(ctx)
	if err != nil || stats.Total != 2 || stats.ByQueue["q1"] != 1 || stats.ByQueue["q2"] != 1 || stats.ByType["report.make"] != 1 || stats.ByErrorType["SmtpError"] != 2 ||
		!stats.OldestAt.Equal(a.DeadAt) || !stats.NewestAt.Equal(b.DeadAt) {
		t.Errorf("%+v, %v", stats, err)
	}
	if n, err := f.Rig.As("acme", "").DeadLetters.Count(ctx, deadletter.Filter{Family: jobs.Family, Status: background.LetterOpen}); err != nil || n.Total != stats.Total {
		t.Errorf("%+v, %v", n, err)
	}
}
