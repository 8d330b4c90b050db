package postadjudication

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
)

// hookedArchive is an archive that lets something happen once, after letters were read and
// before they are taken.
type hookedArchive struct {
	Archive
	hook func()
	once sync.Once
}

func (a *hookedArchive) Put(ctx context.Context, name string, content []byte) error {
	a.once.Do(a.hook)
	return a.Archive.Put(ctx, name, content)
}

// A letter that is held, marked otherwise or forked between its being read and being
// taken stays; one of which only a note was taken goes.
func TestAPurgeLeavesWhatItsFilterNoLongerSelects(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	same, held, marked, forked, noted := r.deadLetter(1, func(Call) Answer { return busy429() }), r.deadLetter(2, func(Call) Answer { return busy429() }),
		r.deadLetter(3, func(Call) Answer { return busy429() }), r.deadLetter(4, func(Call) Answer { return busy429() }), r.deadLetter(5, func(Call) Answer { return busy429() })
	ctx := context.Background()
	archive := &hookedArchive{hook: func() {
		no, yes := false, true
		if _, err := r.Hold(ctx, "acme", held.Run, holdRequest); err != nil {
			t.Error(err)
		}
		if _, err := r.Mark(ctx, "acme", marked.Run, MarkRequest{Actor: "user:ada", Reason: "a person looks first", ReprocessEligible: &no}); err != nil {
			t.Error(err)
		}
		if _, err := r.Fork(ctx, "acme", forked.Run, forkRequest); err != nil {
			t.Error(err)
		}
		if _, err := r.Mark(ctx, "acme", noted.Run, MarkRequest{Actor: "user:ada", Reason: "as it was", ReprocessEligible: &yes}); err != nil {
			t.Error(err)
		}
	}}
	k := joinRig(t, r.url, r.redis, r.escrow, withArchive(t), func(c *Config) { archive.Archive, c.Archive = c.Archive, archive })
	eligible := true
	q := refusedLetters()
	q.Filter = LetterFilter{Reprocess: &eligible}
	plan, err := k.PlanPurge(ctx, "acme", q)
	if err != nil || plan.Letters != 5 {
		t.Fatalf("%+v, %v", plan, err)
	}
	q.Confirm = strconv.Itoa(plan.Letters)
	if done, err := k.Purge(ctx, "acme", q); err != nil || done != (Purged{Letters: 2, ChangedMeanwhile: 3}) {
		t.Errorf("%+v, %v", done, err)
	}
	for name, want := range map[string]struct {
		of Submitted
		is background.LetterStatus
	}{
		"same": {same, background.LetterPurged}, "held": {held, background.LetterOpen}, "marked": {marked, background.LetterOpen},
		"forked": {forked, background.LetterForked}, "noted": {noted, background.LetterPurged},
	} {
		if got := r.letterStatus(want.of); got != want.is {
			t.Errorf("%s: %s", name, got)
		}
	}
	r.untilNoneLive()
	r.mustAudit()
}
