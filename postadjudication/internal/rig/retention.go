package rig

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

// Pruner is a process that prunes letters and executes nothing, with a clock that the test sets.
type Pruner struct {
	*Rig
	Archive retention.Archive // may be nil
	clock   *Clock
}

// NewPruner returns a pruner, and stops the rig's own workers: their first round of pruning may
// come at any time, and with another clock.
func (r *Rig) NewPruner(change ...func(*postadjudication.Config)) *Pruner {
	r.StopWorkers()
	k := &Pruner{}
	keep := func(c *postadjudication.Config) { k.Archive = c.Archive }
	k.Rig, k.clock = r.WithClock(append(slices.Clone(change), keep)...)
	return k
}

// At sets how far the pruner's clock is ahead of the machine's.
func (k *Pruner) At(ahead time.Duration) *Pruner {
	k.clock.Set(ahead)
	return k
}

// FixAt stops the pruner's clock at a time.
func (k *Pruner) FixAt(at time.Time) *Pruner {
	k.clock.Fix(at)
	return k
}

// MustPrune runs one round of the pruner.
func (k *Pruner) MustPrune(want retention.Report) {
	k.T.Helper()
	want.Ran = true
	if got, err := k.Prune(context.Background()); err != nil || got != want {
		k.T.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// WithArchive gives a process an archive in a folder of the test.
func WithArchive(t testing.TB) func(*postadjudication.Config) {
	t.Helper()
	a, err := retention.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return func(c *postadjudication.Config) { c.Archive = a }
}

// ArchivedLetters returns the archived letters of a family, by run.
func (k *Pruner) ArchivedLetters(tenant, family string) map[background.RunID]retention.ArchivedLetter {
	k.T.Helper()
	out := map[background.RunID]retention.ArchivedLetter{}
	for l, err := range k.As(tenant, "").DeadLetters.Archived(context.Background(), family) {
		if err != nil {
			k.T.Fatal(err)
		}
		if _, twice := out[l.Run]; twice {
			k.T.Errorf("letter %s is read twice", l.Run)
		}
		out[l.Run] = l
	}
	return out
}

// Files returns the names of all files in the archive.
func (k *Pruner) Files() (names []string) {
	k.T.Helper()
	for name, err := range k.Archive.Names(context.Background(), "") {
		if err != nil {
			k.T.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// RejectingArchive is an archive that refuses files which contain a text.
type RejectingArchive struct {
	retention.Archive
	Text  string
	mu    sync.Mutex
	Tries int
}

// ErrRejected is the error of an archive that refuses a file.
var ErrRejected = errors.New("the archive does not take this")

// Put implements Archive.
func (a *RejectingArchive) Put(ctx context.Context, name string, content []byte) error {
	a.mu.Lock()
	a.Tries++
	a.mu.Unlock()
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return err
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	if bytes.Contains(plain, []byte(a.Text)) {
		return ErrRejected
	}
	return a.Archive.Put(ctx, name, content)
}

// RefusePurges makes the database refuse to purge letters, at the statement or at the commit, until mend
// is called. trigger is what stands between CREATE and FOR EACH ROW: a constraint trigger that is deferred
// refuses at the commit.
func RefusePurges(r *Rig, trigger string) (mend func()) {
	r.T.Helper()
	exec := func(statement string) {
		r.T.Helper()
		if _, err := r.DB.Exec(statement); err != nil {
			r.T.Fatal(err)
		}
	}
	exec(`CREATE FUNCTION recourse.stubborn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.letter = 'purged' THEN RAISE 'not this one'; END IF; RETURN NEW; END $$`)
	exec(`CREATE ` + trigger + ` FOR EACH ROW EXECUTE FUNCTION recourse.stubborn()`)
	return func() { exec(`DROP FUNCTION recourse.stubborn() CASCADE`) }
}
