package postadjudication

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// picky is an archive that does not take files which hold a text.
type picky struct {
	Archive
	text  string
	tries int
}

var errPicky = errors.New("the archive does not take this")

func (a *picky) Put(ctx context.Context, name string, content []byte) error {
	a.tries++
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return err
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	if bytes.Contains(plain, []byte(a.text)) {
		return errPicky
	}
	return a.Archive.Put(ctx, name, content)
}

// manyDead makes dead letters that share their cause.
func (r *rig) manyDead(n int) []Submitted {
	r.t.Helper()
	all := make([]Adjudication, n)
	for i := range all {
		all[i] = release(i)
	}
	r.escrow.mu.Lock()
	r.escrow.script = func(context.Context, Call) Answer { return refused() }
	r.escrow.mu.Unlock()
	made, errs := r.SubmitBatch(context.Background(), all)
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
	r.atRest()
	return made
}

// One letter that the archive refuses, and one that the database refuses, stay; the
// others go, and the two are tried again and go when they can.
func TestALetterThatCannotBePrunedHindersNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	made := r.manyDead(40)
	refuse := func(on string, run background.RunID) {
		t.Helper()
		_, err := r.db.Exec(`CREATE FUNCTION recourse.no_` + on + `() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF coalesce(NEW.id, OLD.id) = '` + run.String() + `' AND NEW.letter = 'purged' THEN RAISE 'not this one'; END IF; RETURN NEW; END $$;
			CREATE TRIGGER no_` + on + ` BEFORE UPDATE ON recourse.runs FOR EACH ROW EXECUTE FUNCTION recourse.no_` + on + `()`)
		if err != nil {
			t.Fatal(err)
		}
	}
	refuse("update", made[29].Run)
	archive := &picky{text: `"txr_7"`}
	k := r.keeper(inArchive(t), func(c *Config) { archive.Archive, c.Archive = c.Archive, archive }).at(174 * day)
	k.prune(PruneReport{Warned: 40})
	k.at(182 * day)
	got, err := k.Prune(context.Background())
	if !errors.Is(err, errPicky) || got.Warned != 0 || got.Pruned != 38 || got.Failed != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for i, s := range made {
		want := background.LetterPurged
		if i == 7 || i == 29 {
			want = background.LetterOpen
		}
		if is := r.standing(s); is != want {
			t.Errorf("letter %d is %s", i, is)
		}
	}
	if st := k.Stats().Retention; st.Rounds != 2 || st.Failed != 2 || st.Pruned != 38 {
		t.Errorf("%+v", st)
	}
	archive.text = "\x00"
	if _, err := r.db.Exec(`DROP TRIGGER no_update ON recourse.runs`); err != nil {
		t.Fatal(err)
	}
	k.prune(PruneReport{Pruned: 2})
	if kept := k.archivedLetters("acme", Family); len(kept) != 40 {
		t.Errorf("%d archived", len(kept))
	}
	r.sound()
}

// A letter whose end can't be announced keeps no other from being announced, nor from
// being taken.
func TestALetterThatCannotBeAnnouncedHindersNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	made := r.manyDead(10)
	_, err := r.db.Exec(`ALTER TABLE recourse.desk ADD CONSTRAINT not_this_one CHECK (run_id <> '` + made[4].Run.String() + `')`)
	if err != nil {
		t.Fatal(err)
	}
	k := r.keeper(inArchive(t)).at(174 * day)
	if got, err := k.Prune(context.Background()); err == nil || got.Warned != 9 || got.Failed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	k.at(190 * day)
	if got, err := k.Prune(context.Background()); err == nil || got.Pruned != 9 || got.Failed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if is := r.standing(made[4]); is != background.LetterOpen || len(r.told(made[4], receipts.RetentionExpired)) != 0 {
		t.Errorf("the letter that was not announced is %s", is)
	}
	r.sound()
}

// When nothing works, the round does not try each letter; and the other families have
// their turn all the same.
func TestAnArchiveThatTakesNothingIsNotAskedForEveryLetter(t *testing.T) {
	t.Parallel()
	with := func(c *Config) {
		c.Families = []Plain{{Name: "zchores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
		}}}
	}
	r := newRig(t, with).work()
	r.manyDead(60)
	if _, err := r.SubmitTask(context.Background(), Task{Tenant: "acme", Family: "zchores", Payload: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	r.atRest()
	archive := &picky{text: `"family":"settlement"`}
	k := r.keeper(with, inArchive(t), func(c *Config) { archive.Archive, c.Archive = c.Archive, archive }).at(174 * day)
	k.prune(PruneReport{Warned: 61})
	k.at(182 * day)
	got, err := k.Prune(context.Background())
	if !errors.Is(err, errPicky) || got.Warned != 0 || got.Pruned != 1 || got.Failed != 60 {
		t.Errorf("%+v, %v", got, err)
	}
	if archive.tries != pruneGiveUp+1 {
		t.Errorf("the archive was asked %d times", archive.tries)
	}
	if st := k.Stats().Retention; st.Rounds != 1 || st.Failed != 60 {
		t.Errorf("%+v", st)
	}
	r.sound()
}

// While the journal can't be written, a round puts one file into the archive, and not
// one for each half of the letters.
func TestAJournalThatTakesNothingIsNotAskedAgainInARound(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	r.manyDead(40)
	archive := &picky{text: "\x00"}
	k := r.keeper(inArchive(t), func(c *Config) { archive.Archive, c.Archive = c.Archive, archive }).at(174 * day)
	k.prune(PruneReport{Warned: 40})
	if _, err := r.db.Exec(`CREATE FUNCTION recourse.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.letter = 'purged' THEN RAISE 'no room' USING ERRCODE = 'disk_full'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER no_room BEFORE UPDATE ON recourse.runs FOR EACH ROW EXECUTE FUNCTION recourse.full()`); err != nil {
		t.Fatal(err)
	}
	k.at(182 * day)
	got, err := k.Prune(context.Background())
	if !errors.Is(err, errJournalTrouble) || got.Pruned != 0 || got.Failed != 40 || archive.tries != 1 {
		t.Errorf("%+v after %d files, %v", got, archive.tries, err)
	}
	if _, err := r.db.Exec(`DROP TRIGGER no_room ON recourse.runs`); err != nil {
		t.Fatal(err)
	}
	k.prune(PruneReport{Pruned: 40})
	r.sound()
}
