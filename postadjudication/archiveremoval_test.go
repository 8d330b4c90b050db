package postadjudication

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/receipts"
)

// files returns the names of all files in the archive.
func (k *retentionRig) files() (names []string) {
	k.t.Helper()
	for name, err := range k.keeper.archive.Names(context.Background(), "") {
		if err != nil {
			k.t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// failLetterWrites makes the database refuse to purge letters, at the statement or at the
// commit.
func (r *rig) failLetterWrites(trigger string) (mend func()) {
	r.t.Helper()
	exec := func(statement string) {
		r.t.Helper()
		if _, err := r.db.Exec(statement); err != nil {
			r.t.Fatal(err)
		}
	}
	exec(`CREATE FUNCTION recourse.stubborn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.letter = 'purged' THEN RAISE 'not this one'; END IF; RETURN NEW; END $$`)
	exec(`CREATE ` + trigger + ` FOR EACH ROW EXECUTE FUNCTION recourse.stubborn()`)
	return func() { exec(`DROP FUNCTION recourse.stubborn() CASCADE`) }
}

// A letter that the journal refuses to purge leaves no file behind, however often pruning or a
// purge retries. Once it is purged there is one file, and its receipt names it.
func TestALetterThatIsNotPurgedLeavesNoFile(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	k := r.retentionRig(withArchive(t)).at(174 * validate.Day)
	k.prune(PruneReport{Announced: 1})
	mend := r.failLetterWrites(`TRIGGER stubborn BEFORE UPDATE ON recourse.runs`)
	k.at(182 * validate.Day)
	for range 3 {
		if got, err := k.Prune(context.Background()); err == nil || got.Pruned != 0 || got.Failed != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := k.Purge(context.Background(), "acme", PurgeRequest{Filter: deadletter.Filter{Family: casework.Family}, Reason: "out", Confirm: "1"}); err == nil {
		t.Error("it was purged")
	}
	if left := k.files(); len(left) != 0 {
		t.Errorf("files of failed tries: %v", left)
	}
	mend()
	k.prune(PruneReport{Pruned: 1})
	if payloads := r.payloadsOf(letter, receipts.RetentionExpired); len(payloads) != 1 || !slices.Equal(k.files(), []string{payloads[0].Archive}) {
		t.Errorf("%v for %+v", k.files(), payloads)
	}
	r.mustAudit()
}

// Once a commit was sent it may have succeeded, so the file stays.
func TestTheFileOfACommitThatFailedStays(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	k := r.retentionRig(withArchive(t)).at(174 * validate.Day)
	k.prune(PruneReport{Announced: 1})
	mend := r.failLetterWrites(`CONSTRAINT TRIGGER stubborn AFTER UPDATE ON recourse.runs DEFERRABLE INITIALLY DEFERRED`)
	k.at(182 * validate.Day)
	if got, err := k.Prune(context.Background()); err == nil || got.Pruned != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if left := k.files(); len(left) != 1 || r.letterStatus(letter) != background.LetterOpen {
		t.Errorf("%v, and the letter is %s", left, r.letterStatus(letter))
	}
	mend()
	k.prune(PruneReport{Pruned: 1})
	if kept := k.archivedLetters("acme", casework.Family); len(kept) != 1 || len(k.files()) != 2 {
		t.Errorf("%d letters in %v", len(kept), k.files())
	}
	r.mustAudit()
}

// A letter that is forked at the moment of its removal leaves no file.
func TestALetterThatMovedOnLeavesNoFile(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	k := r.retentionRig(withArchive(t)).at(174 * validate.Day)
	k.prune(PruneReport{Announced: 1})
	seen, err := k.journal.Letters.ByID(context.Background(), letter.Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, deadletter.Fork{Reason: "now"}); err != nil {
		t.Fatal(err)
	}
	round := &pruneRound{keeper: k.keeper}
	k.at(182 * validate.Day)
	puts := &putCounter{ArchiveRemover: k.keeper.archive.(ArchiveRemover), Archive: k.keeper.archive}
	k.cases.Archive = &letterArchive{puts, k.log}
	got, err := round.purgeExpired(context.Background(), k.keeper.rules.ruleFor(casework.Family, seen[0].Run.Queue), expiredByAge, seen, nil)
	if err != nil || len(got) != 1 || !errors.Is(got[0].Err, casework.ErrLetterChanged) || round.report.Pruned != 0 {
		t.Errorf("%+v, %+v, %v", got, round.report, err)
	}
	if left := k.files(); len(left) != 0 || puts.n != 1 {
		t.Errorf("%v after %d files", left, puts.n)
	}
}

// putCounter counts the files written to the archive.
type putCounter struct {
	Archive
	ArchiveRemover
	n int
}

func (p *putCounter) Put(ctx context.Context, name string, content []byte) error {
	p.n++
	return p.Archive.Put(ctx, name, content)
}
