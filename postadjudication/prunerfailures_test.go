package postadjudication

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// rejectingArchive is an archive that refuses files which contain a text.
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

// deadLettersOfOneCause creates dead letters with the same cause.
func (r *rig) deadLettersOfOneCause(n int) []Submitted {
	r.t.Helper()
	all := make([]Adjudication, n)
	for i := range all {
		all[i] = release(i)
	}
	r.escrow.mu.Lock()
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return refused() }
	r.escrow.mu.Unlock()
	made, errs := r.SubmitBatch(context.Background(), all)
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
	r.untilNoneLive()
	return made
}

// One letter that the archive refuses and one that the database refuses stay; the others are
// purged, and a later round purges the two once it can.
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
	k := r.retentionRig(withArchive(t), func(c *Config) { archive.Archive, c.Archive = c.Archive, archive }).at(174 * validate.Day)
	k.prune(PruneReport{Announced: 40})
	k.at(182 * validate.Day)
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
	if st := k.Health().Stats().Retention; st.Rounds != 2 || st.Failed != 2 || st.Pruned != 38 {
		t.Errorf("%+v", st)
	}
	archive.text = "\x00"
	if _, err := r.db.Exec(`DROP TRIGGER no_update ON recourse.runs`); err != nil {
		t.Fatal(err)
	}
	k.prune(PruneReport{Pruned: 2})
	if kept := k.archivedLetters("acme", casework.Family); len(kept) != 40 {
		t.Errorf("%d archived", len(kept))
	}
	r.mustAudit()
}

// A letter that can't be announced does not block the announcement or purge of
// others.
func TestALetterThatCannotBeAnnouncedHindersNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	made := r.deadLettersOfOneCause(10)
	_, err := r.db.Exec(`ALTER TABLE recourse.annotations ADD CONSTRAINT not_this_one CHECK (run_id <> '` + made[4].Run.String() + `')`)
	if err != nil {
		t.Fatal(err)
	}
	k := r.retentionRig(withArchive(t)).at(174 * validate.Day)
	if got, err := k.Prune(context.Background()); err == nil || got.Announced != 9 || got.Failed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	k.at(190 * validate.Day)
	if got, err := k.Prune(context.Background()); err == nil || got.Pruned != 9 || got.Failed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if is := r.letterStatus(made[4]); is != background.LetterOpen || len(r.payloadsOf(made[4], receipts.RetentionExpired)) != 0 {
		t.Errorf("the letter that was not announced is %s", is)
	}
	r.mustAudit()
}

// When nothing works, the round does not try each letter; and the other families are still
// tried.
func TestAnArchiveThatTakesNothingIsNotAskedForEveryLetter(t *testing.T) {
	t.Parallel()
	with := func(c *Config) {
		c.Families = []PlainFamily{{Name: "zchores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
		}}}
	}
	r := newRig(t, with).startWorkers()
	r.deadLettersOfOneCause(60)
	if _, err := r.SubmitTask(context.Background(), Task{Tenant: "acme", Family: "zchores", Payload: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	archive := &rejectingArchive{text: `"family":"settlement"`}
	k := r.retentionRig(with, withArchive(t), func(c *Config) { archive.Archive, c.Archive = c.Archive, archive }).at(174 * validate.Day)
	k.prune(PruneReport{Announced: 61})
	k.at(182 * validate.Day)
	got, err := k.Prune(context.Background())
	if !errors.Is(err, errRejected) || got.Announced != 0 || got.Pruned != 1 || got.Failed != 60 {
		t.Errorf("%+v, %v", got, err)
	}
	if archive.tries != tenantFailureLimit+1 {
		t.Errorf("the archive was asked %d times", archive.tries)
	}
	if st := k.Health().Stats().Retention; st.Rounds != 1 || st.Failed != 60 {
		t.Errorf("%+v", st)
	}
	r.mustAudit()
}

// While the journal can't be written, a round writes one archive file, not one for each half of
// the letters.
func TestAJournalThatTakesNothingIsNotAskedAgainInARound(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	r.deadLettersOfOneCause(40)
	archive := &rejectingArchive{text: "\x00"}
	k := r.retentionRig(withArchive(t), func(c *Config) { archive.Archive, c.Archive = c.Archive, archive }).at(174 * validate.Day)
	k.prune(PruneReport{Announced: 40})
	if _, err := r.db.Exec(`CREATE FUNCTION recourse.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.letter = 'purged' THEN RAISE 'no room' USING ERRCODE = 'disk_full'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER no_room BEFORE UPDATE ON recourse.runs FOR EACH ROW EXECUTE FUNCTION recourse.full()`); err != nil {
		t.Fatal(err)
	}
	k.at(182 * validate.Day)
	got, err := k.Prune(context.Background())
	if !errors.Is(err, casework.ErrJournalUnavailable) || got.Pruned != 0 || got.Failed != 40 || archive.tries != 1 {
		t.Errorf("%+v after %d files, %v", got, archive.tries, err)
	}
	if _, err := r.db.Exec(`DROP TRIGGER no_room ON recourse.runs`); err != nil {
		t.Fatal(err)
	}
	k.prune(PruneReport{Pruned: 40})
	r.mustAudit()
}

// unchanged is a decision that changes nothing.
func unchanged(f journal.LetterRow) (journal.Change, error) {
	after := f.Snapshot
	return journal.Change{Before: &f.Snapshot, After: &after}, nil
}

// letterList is a list of letters, some of which always fail.
type letterList struct {
	casework.LetterJournal
	letters      []journal.LetterRow
	failing      map[background.RunID]bool
	pages, tries int
	done         map[string]int // number of letters by tenant
}

func (s *letterList) add(tenant string, n int, bad bool) {
	for range n {
		var f journal.LetterRow
		f.Run.ID, f.Run.Tenant = background.RunID(casework.NewID()), tenant
		if s.letters = append(s.letters, f); bad {
			s.failing[f.Run.ID] = true
		}
	}
}

// ApplyLetterBatch fails if one of the letters does.
func (s *letterList) ApplyLetterBatch(_ context.Context, changes []journal.Change) ([]bool, error) {
	s.tries++
	if slices.ContainsFunc(changes, func(ch journal.Change) bool { return s.failing[ch.Before.Run.ID] }) {
		return nil, errRejected
	}
	for _, ch := range changes {
		s.done[ch.Before.Run.Tenant]++
	}
	return slices.Repeat([]bool{true}, len(changes)), nil
}

// scan iterates over the list as a round does, with a decision that changes nothing.
func (s *letterList) scan() (PruneReport, error) { return s.scanBy(unchanged) }

func (s *letterList) scanBy(decide casework.Decision) (PruneReport, error) {
	s.done = map[string]int{}
	p := pruneRound{keeper: &keeper{log: zap.NewNop()}}
	at := 0
	err := p.eachPage(context.Background(), func(after journal.LetterRowPosition) ([]journal.LetterRow, journal.LetterRowPosition, error) {
		page := s.letters[at:min(at+pruneBatch, len(s.letters))]
		if len(page) == 0 {
			return nil, after, nil
		}
		s.pages++
		at += len(page)
		return page, journal.LetterRowPosition{Run: page[len(page)-1].Run.ID}, nil
	}, func(letters []journal.LetterRow, tried func(int, error) bool) ([]casework.Result, error) {
		return (&casework.Cases{Letters: s}).ApplyMany(context.Background(), letters, decide, casework.Batch{Tried: tried})
	})
	return p.report, err
}

// A decision that panics is a failure of its letter. One that a gate refuses is none.
func TestADecisionThatPanicsIsCounted(t *testing.T) {
	t.Parallel()
	s := letterList{failing: map[background.RunID]bool{}}
	s.add("acme", 10, false)
	got, err := s.scanBy(func(f journal.LetterRow) (journal.Change, error) {
		switch f.Run.ID {
		case s.letters[3].Run.ID:
			panic("no such rule")
		case s.letters[7].Run.ID:
			return journal.Change{}, casework.RefusedBy(refusal.GateHeld, f.Snapshot)
		}
		return unchanged(f)
	})
	if err != nil || got.Failed != 1 || s.done["acme"] != 8 {
		t.Errorf("%+v, %v done, %v", got, s.done, err)
	}
}

// Adjacent failing letters at the oldest end block neither other letters of their tenant nor
// those of others.
func TestLettersBesideEachOtherThatFailHinderNoOther(t *testing.T) {
	t.Parallel()
	for _, bad := range []int{1, 9, 20, 100} {
		s := letterList{failing: map[background.RunID]bool{}}
		s.add("acme", bad, true)
		s.add("acme", 700, false)
		s.add("other", 30, false)
		got, err := s.scan()
		if err != nil || s.done["acme"] < 680 || s.done["other"] != 30 || got.Failed != bad+700-s.done["acme"] {
			t.Errorf("%d bad ones: %v done, %+v, %v", bad, s.done, got, err)
		}
		if bad < tenantFailureLimit && s.done["acme"] != 700 {
			t.Errorf("%d bad ones: %v done", bad, s.done)
		}
	}
}

// A tenant whose letters all fail is skipped after a while, and the others are not.
func TestATenantWithWhomNothingWorksHindersNoOther(t *testing.T) {
	t.Parallel()
	s := letterList{failing: map[background.RunID]bool{}}
	s.add("acme", 20*pruneBatch, true)
	for range 10 {
		s.add("acme", 10, true)
		s.add("other", 90, false)
	}
	got, err := s.scan()
	if err != nil || s.done["other"] != 900 || s.done["acme"] != 0 || got.Failed != 20*pruneBatch+100 {
		t.Errorf("%v done, %+v, %v", s.done, got, err)
	}
	if most := skipTenantAfterPages*tenantFailureLimit + 2; s.tries > most {
		t.Errorf("%d tries, %d at most", s.tries, most)
	}
}

// However many tenants always fail, and however many letters they have, the tenants behind them
// are tried, also if one of their own letters fails.
func TestEveryTenantHasItsTurn(t *testing.T) {
	t.Parallel()
	s := letterList{failing: map[background.RunID]bool{}}
	for range 12 {
		s.add(casework.NewID().String(), 3*pruneBatch, true)
	}
	for range 300 {
		s.add(casework.NewID().String(), 1, true)
	}
	s.add("mixed", 1, true)
	s.add("mixed", 99, false)
	s.add("other", 99, false)
	for range degradedAfterFailures {
		s.add(casework.NewID().String(), 1, true)
	}
	s.add("last", 1, false)
	got, err := s.scan()
	if err != nil || s.done["mixed"] != 99 || s.done["other"] != 99 || s.done["last"] != 1 || got.Failed != len(s.letters)-199 {
		t.Errorf("%v done, %+v, %v", s.done, got, err)
	}
}

// When nothing works for any tenant, each tenant is tried, but not each of its letters.
func TestWhenNothingWorksEachTenantIsTriedABit(t *testing.T) {
	t.Parallel()
	s := letterList{failing: map[background.RunID]bool{}}
	const tenants = 60
	for range tenants {
		s.add(casework.NewID().String(), 2*pruneBatch, true)
	}
	got, err := s.scan()
	if most := degradedAfterFailures + tenants*skipTenantAfterPages*degradedFailureLimit; err != nil || got.Failed != len(s.letters) || s.tries > most || s.tries < tenants {
		t.Errorf("%d tries, %d at most; %+v, %v", s.tries, most, got, err)
	}
}
