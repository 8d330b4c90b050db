package retention_test

import (
	"context"
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/receipts"
)

// A letter that the journal refuses to purge leaves no file behind, however often pruning
// retries. Once it is purged there is one file, and its receipt names it.
func TestALetterThatIsNotPurgedLeavesNoFile(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	k := r.NewPruner(rig.WithArchive(t)).At(174 * day)
	k.MustPrune(retention.Report{Announced: 1})
	mend := rig.RefusePurges(r, `TRIGGER stubborn BEFORE UPDATE ON recourse.runs`)
	k.At(182 * day)
	for range 3 {
		if got, err := k.Prune(context.Background()); err == nil || got.Pruned != 0 || got.Failed != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if left := k.Files(); len(left) != 0 {
		t.Errorf("files of failed tries: %v", left)
	}
	mend()
	k.MustPrune(retention.Report{Pruned: 1})
	if payloads := r.Payloads(letter, receipts.RetentionExpired); len(payloads) != 1 || !slices.Equal(k.Files(), []string{payloads[0].Archive}) {
		t.Errorf("%v for %+v", k.Files(), payloads)
	}
	r.MustAudit()
}

// Once a commit was sent it may have succeeded, so the file stays.
func TestTheFileOfACommitThatFailedStays(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	k := r.NewPruner(rig.WithArchive(t)).At(174 * day)
	k.MustPrune(retention.Report{Announced: 1})
	mend := rig.RefusePurges(r, `CONSTRAINT TRIGGER stubborn AFTER UPDATE ON recourse.runs DEFERRABLE INITIALLY DEFERRED`)
	k.At(182 * day)
	if got, err := k.Prune(context.Background()); err == nil || got.Pruned != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if left := k.Files(); len(left) != 1 || r.LetterStatus(letter) != background.LetterOpen {
		t.Errorf("%v, and the letter is %s", left, r.LetterStatus(letter))
	}
	mend()
	k.MustPrune(retention.Report{Pruned: 1})
	if kept := k.ArchivedLetters("acme", postadjudication.Family); len(kept) != 1 || len(k.Files()) != 2 {
		t.Errorf("%d letters in %v", len(kept), k.Files())
	}
	r.MustAudit()
}

// A letter that is forked at the moment of its removal leaves no file.
func TestALetterThatMovedOnLeavesNoFile(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	puts := &forkingArchive{}
	k := r.NewPruner(rig.WithArchive(t), func(c *postadjudication.Config) {
		puts.Archive, puts.Remover, c.Archive = c.Archive, c.Archive.(retention.Remover), puts
	})
	puts.fork = func() {
		if _, err := k.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, deadletter.Fork{Reason: "now"}); err != nil {
			t.Error(err)
		}
	}
	k.At(174 * day).MustPrune(retention.Report{Announced: 1})
	k.At(182 * day).MustPrune(retention.Report{})
	if left := k.Files(); len(left) != 0 || puts.n != 1 || r.LetterStatus(letter) != background.LetterForked {
		t.Errorf("%v after %d files, and the letter is %s", left, puts.n, r.LetterStatus(letter))
	}
}

// forkingArchive forks a letter after its file is written and before it is purged.
type forkingArchive struct {
	retention.Archive
	retention.Remover
	fork func()
	n    int
}

func (p *forkingArchive) Put(ctx context.Context, name string, content []byte) error {
	p.n++
	err := p.Archive.Put(ctx, name, content)
	p.fork()
	return err
}
