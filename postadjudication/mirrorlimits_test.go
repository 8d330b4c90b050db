package postadjudication

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// asynq keeps at most 10,000 archived tasks, for 90 days, and all of them may be
// gone; letters are none of its business.
func TestEveryLetterCanBeForkedWhateverBecameOfItsArchivedTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue)
	d := r.inspector()
	r.escrow.script = func(context.Context, Call) Answer { return refused() }
	const deaths = 12_000
	r.startWorkers()
	var letters []Submitted
	for from := 0; from < deaths; from += 2000 {
		some := make([]Adjudication, 2000)
		for i := range some {
			some[i] = release(from + i)
		}
		out, errs := r.SubmitBatch(context.Background(), some)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		letters = append(letters, out...)
		r.untilNoneLive()
	}
	r.untilTrue("the mirrors are within their bound", func() bool { n := d.archived(t, onlyQueue); return n > 0 && n <= 5000 })
	r.escrow.mu.Lock()
	r.escrow.script = nil
	r.escrow.mu.Unlock()
	ctx := context.Background()
	fork := func(l Submitted) {
		t.Helper()
		if _, err := r.Fork(ctx, "acme", l.Run, forkRequest); err != nil {
			t.Fatal(err)
		}
	}
	fork(letters[0])
	r.until("the first of all settled", `SELECT count(*) = 1 FROM recourse.cases WHERE progression = 'settled'`)

	if err := d.redis.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	d.insertArchivedTasks(t, onlyQueue, 9000, time.Now().Add(-91*24*time.Hour))
	n, forkable := 0, 0
	for q := (LetterQuery{Filter: LetterFilter{Status: background.LetterOpen}, Limit: 1000}); ; {
		page, err := r.Letters(ctx, "acme", q)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page.Letters {
			if n++; l.CanFork {
				forkable++
			}
		}
		if !page.More {
			break
		}
		q.After = page.Next
	}
	if n != deaths-1 || forkable != n {
		t.Errorf("%d open letters, %d can be forked", n, forkable)
	}
	const some = 200
	for i := range some {
		fork(letters[1+i*(deaths-2)/some])
	}
	r.until("the forks settled", `SELECT count(*) = 201 FROM recourse.cases WHERE progression = 'settled'`)
	r.untilNoneLive()
	r.mustAudit()
}
