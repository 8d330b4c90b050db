package retention_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/receipts"
)

// deadLettersOfOneCause creates dead letters with the same cause.
func deadLettersOfOneCause(r *rig.Rig, n int) []postadjudication.Submitted {
	r.T.Helper()
	all := make([]postadjudication.Adjudication, n)
	for i := range all {
		all[i] = rig.Release(i)
	}
	r.Escrow.Answer(rig.Refuses)
	made, errs := r.SubmitBatch(context.Background(), all)
	if err := errors.Join(errs...); err != nil {
		r.T.Fatal(err)
	}
	r.WaitNoneLive()
	return made
}

// One letter that the archive refuses and one that the database refuses stay; the others are
// purged, and a later round purges the two once it can.
func TestALetterThatCannotBePrunedHindersNoOther(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	made := deadLettersOfOneCause(r, 40)
	refuse := func(on string, run background.RunID) {
		t.Helper()
		_, err := r.DB.Exec(`CREATE FUNCTION recourse.no_` + on + `() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF coalesce(NEW.id, OLD.id) = '` + run.String() + `' AND NEW.letter = 'purged' THEN RAISE 'not this one'; END IF; RETURN NEW; END $$;
			CREATE TRIGGER no_` + on + ` BEFORE UPDATE ON recourse.runs FOR EACH ROW EXECUTE FUNCTION recourse.no_` + on + `()`)
		if err != nil {
			t.Fatal(err)
		}
	}
	refuse("update", made[29].Run)
	archive := &rig.RejectingArchive{Text: `"txr_7"`}
	k := r.NewPruner(rig.WithArchive(t), func(c *postadjudication.Config) { archive.Archive, c.Archive = c.Archive, archive }).At(174 * day)
	k.MustPrune(retention.Report{Announced: 40})
	k.At(182 * day)
	got, err := k.Prune(context.Background())
	if !errors.Is(err, rig.ErrRejected) || got.Announced != 0 || got.Pruned != 38 || got.Failed != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for i, s := range made {
		want := background.LetterPurged
		if i == 7 || i == 29 {
			want = background.LetterOpen
		}
		if is := r.LetterStatus(s); is != want {
			t.Errorf("letter %d is %s", i, is)
		}
	}
	if st := k.Health().Stats().Retention; st.Rounds != 2 || st.Failed != 2 || st.Pruned != 38 {
		t.Errorf("%+v", st)
	}
	archive.Text = "\x00"
	if _, err := r.DB.Exec(`DROP TRIGGER no_update ON recourse.runs`); err != nil {
		t.Fatal(err)
	}
	k.MustPrune(retention.Report{Pruned: 2})
	if kept := k.ArchivedLetters("acme", postadjudication.Family); len(kept) != 40 {
		t.Errorf("%d archived", len(kept))
	}
	r.MustAudit()
}

// A letter that can't be announced does not block the announcement or purge of
// others.
func TestALetterThatCannotBeAnnouncedHindersNoOther(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	made := deadLettersOfOneCause(r, 10)
	_, err := r.DB.Exec(`ALTER TABLE recourse.annotations ADD CONSTRAINT not_this_one CHECK (run_id <> '` + made[4].Run.String() + `')`)
	if err != nil {
		t.Fatal(err)
	}
	k := r.NewPruner(rig.WithArchive(t)).At(174 * day)
	if got, err := k.Prune(context.Background()); err == nil || got.Announced != 9 || got.Failed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	k.At(190 * day)
	if got, err := k.Prune(context.Background()); err == nil || got.Pruned != 9 || got.Failed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if is := r.LetterStatus(made[4]); is != background.LetterOpen || len(r.Payloads(made[4], receipts.RetentionExpired)) != 0 {
		t.Errorf("the letter that was not announced is %s", is)
	}
	r.MustAudit()
}

// When nothing works, the round does not try each letter; and the other families are still
// tried.
func TestAnArchiveThatTakesNothingIsNotAskedForEveryLetter(t *testing.T) {
	t.Parallel()
	with := func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "zchores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
		}}}
	}
	r := rig.New(t, with).StartWorkers()
	deadLettersOfOneCause(r, 60)
	if _, err := r.SubmitTask(context.Background(), postadjudication.Task{Tenant: "acme", Family: "zchores", Payload: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	archive := &rig.RejectingArchive{Text: `"family":"settlement"`}
	k := r.NewPruner(with, rig.WithArchive(t), func(c *postadjudication.Config) { archive.Archive, c.Archive = c.Archive, archive }).At(174 * day)
	k.MustPrune(retention.Report{Announced: 61})
	k.At(182 * day)
	got, err := k.Prune(context.Background())
	if !errors.Is(err, rig.ErrRejected) || got.Announced != 0 || got.Pruned != 1 || got.Failed != 60 {
		t.Errorf("%+v, %v", got, err)
	}
	if archive.Tries != retention.TenantFailureLimit+1 {
		t.Errorf("the archive was asked %d times", archive.Tries)
	}
	if st := k.Health().Stats().Retention; st.Rounds != 1 || st.Failed != 60 {
		t.Errorf("%+v", st)
	}
	r.MustAudit()
}

// While the journal can't be written, a round writes one archive file, not one for each half of
// the letters.
func TestAJournalThatTakesNothingIsNotAskedAgainInARound(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	deadLettersOfOneCause(r, 40)
	archive := &rig.RejectingArchive{Text: "\x00"}
	k := r.NewPruner(rig.WithArchive(t), func(c *postadjudication.Config) { archive.Archive, c.Archive = c.Archive, archive }).At(174 * day)
	k.MustPrune(retention.Report{Announced: 40})
	if _, err := r.DB.Exec(`CREATE FUNCTION recourse.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.letter = 'purged' THEN RAISE 'no room' USING ERRCODE = 'disk_full'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER no_room BEFORE UPDATE ON recourse.runs FOR EACH ROW EXECUTE FUNCTION recourse.full()`); err != nil {
		t.Fatal(err)
	}
	k.At(182 * day)
	got, err := k.Prune(context.Background())
	if !errors.Is(err, casework.ErrJournalUnavailable) || got.Pruned != 0 || got.Failed != 40 || archive.Tries != 1 {
		t.Errorf("%+v after %d files, %v", got, archive.Tries, err)
	}
	if _, err := r.DB.Exec(`DROP TRIGGER no_room ON recourse.runs`); err != nil {
		t.Fatal(err)
	}
	k.MustPrune(retention.Report{Pruned: 40})
	r.MustAudit()
}
