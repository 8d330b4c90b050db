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

// rejectingArchive is an archive that does not take files which hold a text.
type rejectingArchive struct {
	Archive
	text  string
	tries int
}

var errRejected = errors.New("the archive does not take this")

func (a *rejectingArchive) Put(ctx context.Context, name string, content []byte) error {
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
		return errRejected
	}
	return a.Archive.Put(ctx, name, content)
}

// deadLettersOfOneCause makes dead letters that share their cause.
func (r *rig) deadLettersOfOneCause(n int) []Submitted {
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
	r.untilNoneLive()
	return made
}

// One letter that the archive refuses, and one that the database refuses, stay; the
// others go, and the two are tried again and go when they can.
func TestALetterThatCannotBePrunedHindersNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	made := r.deadLettersOfOneCause(40)
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
	archive := &rejectingArchive{text: `"txr_7"`}
	k := r.retentionRig(withArchive(t), func(c *Config) { archive.Archive, c.Archive = c.Archive, archive }).at(174 * day)
	k.prune(PruneReport{Announced: 40})
	k.at(182 * day)
	got, err := k.Prune(context.Background())
	if !errors.Is(err, errRejected) || got.Announced != 0 || got.Pruned != 38 || got.Failed != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for i, s := range made {
		want := background.LetterPurged
		if i == 7 || i == 29 {
			want = background.LetterOpen
		}
		if is := r.letterStatus(s); is != want {
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
	r.mustAudit()
}

// A letter whose end can't be announced keeps no other from being announced, nor from
// being taken.
func TestALetterThatCannotBeAnnouncedHindersNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	made := r.deadLettersOfOneCause(10)
	_, err := r.db.Exec(`ALTER TABLE recourse.desk ADD CONSTRAINT not_this_one CHECK (run_id <> '` + made[4].Run.String() + `')`)
	if err != nil {
		t.Fatal(err)
	}
	k := r.retentionRig(withArchive(t)).at(174 * day)
	if got, err := k.Prune(context.Background()); err == nil || got.Announced != 9 || got.Failed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	k.at(190 * day)
	if got, err := k.Prune(context.Background()); err == nil || got.Pruned != 9 || got.Failed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if is := r.letterStatus(made[4]); is != background.LetterOpen || len(r.payloadsOf(made[4], receipts.RetentionExpired)) != 0 {
		t.Errorf("the letter that was not announced is %s", is)
	}
	r.mustAudit()
}

// When nothing works, the round does not try each letter; and the other families have
// their turn all the same.
func TestAnArchiveThatTakesNothingIsNotAskedForEveryLetter(t *testing.T) {
	t.Parallel()
	with := func(c *Config) {
		c.Families = []PlainFamily{{Name: "zchores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
		}}}
	}
	r := newRig(t, with).startWorkers()
	r.deadLettersOfOneCause(60)
	if _, err := r.SubmitTask(context.Background(), Task{Tenant: "acme", Family: "zchores", Payload: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	archive := &rejectingArchive{text: `"family":"settlement"`}
	k := r.retentionRig(with, withArchive(t), func(c *Config) { archive.Archive, c.Archive = c.Archive, archive }).at(174 * day)
	k.prune(PruneReport{Announced: 61})
	k.at(182 * day)
	got, err := k.Prune(context.Background())
	if !errors.Is(err, errRejected) || got.Announced != 0 || got.Pruned != 1 || got.Failed != 60 {
		t.Errorf("%+v, %v", got, err)
	}
	if archive.tries != tenantFailureLimit+1 {
		t.Errorf("the archive was asked %d times", archive.tries)
	}
	if st := k.Stats().Retention; st.Rounds != 1 || st.Failed != 60 {
		t.Errorf("%+v", st)
	}
	r.mustAudit()
}

// While the journal can't be written, a round puts one file into the archive, and not
// one for each half of the letters.
func TestAJournalThatTakesNothingIsNotAskedAgainInARound(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	r.deadLettersOfOneCause(40)
	archive := &rejectingArchive{text: "\x00"}
	k := r.retentionRig(withArchive(t), func(c *Config) { archive.Archive, c.Archive = c.Archive, archive }).at(174 * day)
	k.prune(PruneReport{Announced: 40})
	if _, err := r.db.Exec(`CREATE FUNCTION recourse.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.letter = 'purged' THEN RAISE 'no room' USING ERRCODE = 'disk_full'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER no_room BEFORE UPDATE ON recourse.runs FOR EACH ROW EXECUTE FUNCTION recourse.full()`); err != nil {
		t.Fatal(err)
	}
	k.at(182 * day)
	got, err := k.Prune(context.Background())
	if !errors.Is(err, errJournalUnavailable) || got.Pruned != 0 || got.Failed != 40 || archive.tries != 1 {
		t.Errorf("%+v after %d files, %v", got, archive.tries, err)
	}
	if _, err := r.db.Exec(`DROP TRIGGER no_room ON recourse.runs`); err != nil {
		t.Fatal(err)
	}
	k.prune(PruneReport{Pruned: 40})
	r.mustAudit()
}
