package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// mustReadEvents reads all events after a position, in pages.
func (f *fixture) mustReadEvents(after int64, page int) (out []jobs.Event) {
	f.t.Helper()
	if err := f.DrainEvents(context.Background()); err != nil {
		f.t.Fatal(err)
	}
	for {
		found, upTo, more, err := f.Events(context.Background(), after, page)
		if err != nil || len(found) > page || upTo.Position < after {
			f.t.Fatalf("%d events, up to %d, %v", len(found), upTo.Position, err)
		}
		out, after = append(out, found...), upTo.Position
		if !more {
			return out
		}
	}
}

func TestEventsSayWhatBecameOfJobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	f.MustSubmit(rig.Release(1)) // of another family
	job := f.mustEnqueue(attempts(2, retrypolicy.DeadLetter))
	f.mustFetch(job)
	if _, err := f.HandBack(ctx, by(job), background.Failure{}); err != nil {
		t.Fatal(err)
	}
	f.mustFetch(job)
	if _, err := f.Nack(ctx, by(job), refused, false, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Jobs.DeadLetters().Retry(ctx, job.ID, again); err != nil {
		t.Fatal(err)
	}
	type seen struct {
		what    receipts.Subtype
		attempt int
	}
	want := []seen{
		{receipts.Submitted, 0}, {receipts.AttemptStarted, 1}, {receipts.AttemptInterrupted, 1}, {receipts.AttemptStarted, 1}, {receipts.DeadLettered, 1},
		{receipts.ManualRetryRequested, 0}, {receipts.Submitted, 0},
	}
	for page := range 4 {
		var got []seen
		last := int64(0)
		for _, e := range f.mustReadEvents(0, page+1) {
			if e.ID != job.ID || e.Type != "mail.send" || e.Queue != mail || e.MaxAttempts != 2 || e.Position <= last || e.At.IsZero() || e.ByRule {
				t.Errorf("%+v", e)
			}
			got, last = append(got, seen{e.Subtype, e.Attempt}), e.Position
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v, want %v", page+1, got, want)
		}
	}
	all := f.mustReadEvents(0, 10)
	if rest := f.mustReadEvents(all[2].Position, 10); len(rest) != len(all)-3 || rest[0].Position != all[3].Position {
		t.Errorf("%d events after the third of %d", len(rest), len(all))
	}
	if other, _, _, err := f.Rig.As("other", "").Jobs.Events(ctx, 0, 10); err != nil || len(other) != 0 {
		t.Errorf("another tenant reads %v, %v", other, err)
	}
	var field *refusal.FieldError
	for _, after := range []int64{-1, 1 << 40} {
		if _, _, _, err := f.Events(ctx, after, 10); !errors.As(err, &field) || field.Field != "after" {
			t.Errorf("after %d: %v", after, err)
		}
	}
	if _, _, _, err := f.Events(ctx, 0, 0); !errors.As(err, &field) || field.Field != "limit" {
		t.Error(err)
	}
}

func TestARoundOfRetentionIsOneEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.mustDie()
	f.mustDie()
	p := f.NewPruner(withJobs).At(181 * 24 * time.Hour)
	if _, err := p.Prune(context.Background()); err != nil {
		t.Fatal(err)
	}
	var pruned []int
	for _, e := range f.mustReadEvents(0, 100) {
		if e.Subtype == receipts.LettersPruned {
			pruned = append(pruned, e.Payload.Letters)
		}
	}
	if !slices.Equal(pruned, []int{2}) {
		t.Errorf("%v", pruned)
	}
}

func TestQueuesAreListedFromTheirFirstJobOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	for _, queue := range []string{"b", "a", "b", "c"} {
		f.mustEnqueue(func(j *jobs.Job) { j.Queue = queue })
	}
	dead := f.mustDie()
	if _, err := f.Jobs.DeadLetters().Retry(ctx, dead.ID, jobs.Retry{Reason: "r", Queue: "d"}); err != nil {
		t.Fatal(err)
	}
	queues, total, err := f.Queues().List(ctx, "a", 1, 3)
	if err != nil || total != 5 || len(queues) != 3 || queues[0].Name != "b" || queues[1].Name != "c" || queues[2].Name != "d" || queues[0].CreatedAt.IsZero() {
		t.Errorf("%+v of %d, %v", queues, total, err)
	}
	if queues, total, err := f.other().Queues().List(ctx, "a", 0, 100); err != nil || total != 5 || queues[4].Name != mail {
		t.Errorf("%+v of %d, %v", queues, total, err)
	}
	// One queue is there before its first job, and once after it.
	names := func(tenant, always string, offset, limit int) (names []string) {
		t.Helper()
		queues, total, err := f.As(tenant, "ada").Jobs.Queues().List(ctx, always, offset, limit)
		if err != nil || total != map[string]int{"acme": 6, "nobody": 1}[tenant] {
			t.Errorf("%v of %d, %v", queues, total, err)
		}
		for _, q := range queues {
			names = append(names, q.Name)
			if q.CreatedAt.IsZero() {
				t.Errorf("%s has no time", q.Name)
			}
		}
		return names
	}
	if got := names("acme", "bb", 1, 3); !slices.Equal(got, []string{"b", "bb", "c"}) {
		t.Errorf("%v", got)
	}
	if got := names("nobody", "default", 0, 100); !slices.Equal(got, []string{"default"}) {
		t.Errorf("%v", got)
	}
}

func TestOutputsAreReadInOrderUpToABound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	var runs []background.RunID
	for _, output := range []string{`"aaaa"`, ``, `"bbbb"`, `"cccc"`} {
		s := f.mustEnqueue()
		f.mustFetch(s)
		done, err := f.Ack(ctx, by(s), json.RawMessage(output))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, done.Run)
	}
	for most, want := range map[int]struct {
		read  int
		found []string
	}{
		1: {2, []string{`"aaaa"`, ``}}, 7: {3, []string{`"aaaa"`, ``, `"bbbb"`}}, 12: {3, []string{`"aaaa"`, ``, `"bbbb"`}}, 13: {4, []string{`"aaaa"`, ``, `"bbbb"`, `"cccc"`}},
	} {
		outputs, read, err := f.Outputs(ctx, runs, most)
		if err != nil || read != want.read {
			t.Errorf("%d bytes: %d read, %v", most, read, err)
		}
		for i, run := range runs {
			if i < read && string(outputs[run]) != want.found[i] {
				t.Errorf("%d bytes: %q at %d", most, outputs[run], i)
			}
		}
	}
	if outputs, read, err := f.As("umbrella", "ada").Jobs.Outputs(ctx, runs, 100); err != nil || len(outputs) != 0 || read != len(runs) {
		t.Errorf("another tenant: %v, %d, %v", outputs, read, err)
	}
	if outputs, read, err := f.Outputs(ctx, nil, 100); err != nil || len(outputs) != 0 || read != 0 {
		t.Errorf("%v, %d, %v", outputs, read, err)
	}
}
