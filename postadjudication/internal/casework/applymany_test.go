package casework

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// memoryJournal keeps the heads of letters, and writes changes of letters whose heads are as
// they were read. The letters are named by their retry keys, one character each.
type memoryJournal struct {
	journalFaults
	mu      sync.Mutex
	letters map[background.RunID]*journal.LetterRow
	batches []string // the letters of each batch
	alone   string   // the letters that were tried alone
	written string   // the letters that were written, in order
}

type journalFaults struct {
	locked string // letters that a batch does not write
	poison string // letters that fail every commit
	lost   int    // how many of the next commits of several letters are written, and return an error
	down   bool   // no commit works
}

var (
	errPoison        = errors.New("not this letter")
	errRefusedCommit = errors.New("rejected")
)

func (j *memoryJournal) LetterRowsByID(_ context.Context, ids ...background.RunID) (out []journal.LetterRow, _ error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range ids {
		out = append(out, *j.letters[id])
	}
	return out, nil
}

func (j *memoryJournal) Snapshot(_ context.Context, id background.RunID) (journal.Snapshot, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.letters[id].Snapshot, nil
}

func (j *memoryJournal) CommitTransition(_ context.Context, id background.RunID, _ background.TransitionID, decide journal.Decision) (*journal.Snapshot, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.letters[id].Snapshot
	j.alone += now.Run.RetryKey
	ch, err := decide(&now)
	switch {
	case err != nil:
		return &now, err
	case strings.Contains(j.poison, now.Run.RetryKey):
		return &now, errPoison
	}
	j.write(ch)
	return ch.After, nil
}

func (j *memoryJournal) write(ch journal.Change) {
	f := j.letters[ch.Before.Run.ID]
	f.Snapshot = *ch.After
	f.Case.Head.Seq++
	j.written += f.Run.RetryKey
}

func (j *memoryJournal) ApplyLetterBatch(ctx context.Context, changes []journal.Change) (written []bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	names := ""
	for _, ch := range changes {
		names += ch.Before.Run.RetryKey
		if ch.Transition == (background.TransitionID{}) || ch.After.Run.LastTransition != ch.Transition {
			return nil, errors.New("a change without its transition")
		}
	}
	j.batches = append(j.batches, names)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case j.down:
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	case j.poison != "" && strings.ContainsAny(names, j.poison):
		return nil, errPoison
	}
	for _, ch := range changes {
		now := j.letters[ch.Before.Run.ID]
		ok := now.Case.Head == ch.Before.Case.Head && !strings.Contains(j.locked, now.Run.RetryKey)
		if written = append(written, ok); ok {
			j.write(ch)
		}
	}
	if j.lost > 0 && len(changes) > 1 {
		j.lost--
		return nil, errors.New("no answer")
	}
	return written, nil
}

// memoryCases returns cases over letters of given names.
func memoryCases(names string) (*Applier, *memoryJournal, []journal.LetterRow) {
	j := &memoryJournal{letters: map[background.RunID]*journal.LetterRow{}}
	var letters []journal.LetterRow
	for _, name := range names {
		var f journal.LetterRow
		f.Run.ID, f.Run.RetryKey, f.Run.Tenant = background.RunID(NewID()), string(name), "acme"
		f.Run.State, f.Run.Letter = background.DeadLettered, background.LetterOpen
		f.Case.Head.Seq = 1
		stored := f
		j.letters[f.Run.ID] = &stored
		letters = append(letters, f)
	}
	return &Applier{Letters: j}, j, letters
}

// leaves is a decision that changes nothing.
func leaves(f journal.LetterRow) (journal.Change, error) {
	after := f.Snapshot
	return journal.Change{Before: &f.Snapshot, After: &after}, nil
}

func TestApplyMany(t *testing.T) {
	t.Parallel()
	refused := &refusal.RefusedError{Gate: refusal.GateHeld}
	for name, c := range map[string]struct {
		letters  string
		many     Batch
		faults   journalFaults
		changed  string // letters that change after they were read
		refused  string // letters that the decision refuses
		panics   string // letters on which the decision panics
		cancel   bool
		batches  []string
		alone    string
		written  string
		errs     map[string]error // of the letters that are not written
		wantErr  error
		anyOrder bool
	}{
		"all share a commit":             {letters: "abcd", batches: []string{"abcd"}, written: "abcd"},
		"no letters":                     {many: Batch{Alone: 2, Commits: 2}},
		"two commits at once":            {letters: "abcde", many: Batch{Commits: 2}, batches: []string{"abc", "de"}, written: "abcde", anyOrder: true},
		"fewer letters than commits":     {letters: "a", many: Batch{Commits: 4}, batches: []string{"a"}, written: "a"},
		"groups share no commit":         {letters: "aBcD", many: Batch{group: byLetterCase}, batches: []string{"ac", "BD"}, written: "acBD"},
		"groups in two commits at once":  {letters: "aBcD", many: Batch{group: byLetterCase, Commits: 2}, batches: []string{"B", "D", "a", "c"}, written: "BDac", anyOrder: true},
		"one fails every commit":         {letters: "abcd", faults: journalFaults{poison: "c"}, batches: []string{"abcd", "ab", "cd", "c", "d"}, written: "abd", errs: map[string]error{"c": errPoison}},
		"all fail":                       {letters: "abc", faults: journalFaults{poison: "abc"}, batches: []string{"abc", "a", "bc", "b", "c"}, errs: map[string]error{"a": errPoison, "b": errPoison, "c": errPoison}},
		"one is locked":                  {letters: "abc", faults: journalFaults{locked: "b"}, batches: []string{"abc"}, written: "ac", errs: map[string]error{"b": ErrLetterChanged}},
		"one is locked, and waited for":  {letters: "abc", many: Batch{Alone: 2}, faults: journalFaults{locked: "b"}, batches: []string{"abc"}, alone: "b", written: "acb"},
		"one is locked, and fails alone": {letters: "ab", many: Batch{Alone: 2}, faults: journalFaults{locked: "b"}, changed: "b", batches: []string{"ab"}, alone: "b", written: "a", errs: map[string]error{"b": ErrLetterChanged}},
		"one has changed":                {letters: "abc", changed: "a", batches: []string{"abc"}, written: "bc", errs: map[string]error{"a": ErrLetterChanged}},
		"one is refused":                 {letters: "abc", many: Batch{Alone: 1}, refused: "b", batches: []string{"ac"}, written: "ac", errs: map[string]error{"b": refused}},
		"all are refused":                {letters: "ab", refused: "ab", errs: map[string]error{"a": refused, "b": refused}},
		"the decision panics":            {letters: "abc", panics: "a", batches: []string{"bc"}, written: "bc", errs: map[string]error{"a": ErrPanicked}},
		"a refused one beside one that fails": {letters: "abcd", faults: journalFaults{poison: "d"}, refused: "a", batches: []string{"bcd", "b", "cd", "c", "d"}, written: "bc",
			errs: map[string]error{"a": refused, "d": errPoison}},
		"a commit without an answer is not repeated": {letters: "abcd", faults: journalFaults{lost: 1}, batches: []string{"abcd", "ab", "cd"}, written: "abcd",
			errs: map[string]error{"a": ErrLetterChanged, "b": ErrLetterChanged, "c": ErrLetterChanged, "d": ErrLetterChanged}},
		"a commit without an answer is not repeated alone": {letters: "ab", many: Batch{Alone: 1}, faults: journalFaults{lost: 1}, batches: []string{"ab", "a", "b"}, alone: "ab", written: "ab",
			errs: map[string]error{"a": ErrLetterChanged, "b": ErrLetterChanged}},
		"the journal is down": {letters: "abcd", faults: journalFaults{down: true}, batches: []string{"abcd"}, wantErr: ErrJournalUnavailable,
			errs: map[string]error{"a": ErrNotTried, "b": ErrNotTried, "c": ErrNotTried, "d": ErrNotTried}},
		"it ends at the first failure": {letters: "abcd", many: Batch{Tried: func(_ int, err error) bool { return err == nil }}, faults: journalFaults{poison: "d"}, batches: []string{"abcd"},
			errs: map[string]error{"a": ErrNotTried, "b": ErrNotTried, "c": ErrNotTried, "d": ErrNotTried}},
		"it ends at the first letter that fails": {letters: "abcd", many: Batch{Tried: func(n int, err error) bool { return n > 1 || err == nil }}, faults: journalFaults{poison: "c"},
			batches: []string{"abcd", "ab", "cd", "c"}, written: "ab", errs: map[string]error{"c": errPoison, "d": ErrNotTried}},
		"it ends before one is tried alone": {letters: "ab", many: Batch{Alone: 1, Tried: func(int, error) bool { return false }}, faults: journalFaults{locked: "b"}, batches: []string{"ab"}, written: "a",
			errs: map[string]error{"b": ErrLetterChanged}},
		"the context has ended": {letters: "ab", many: Batch{Alone: 1}, cancel: true, errs: map[string]error{"a": ErrNotTried, "b": ErrNotTried}},
		"around refuses": {letters: "ab", many: Batch{Around: func(context.Context, []journal.LetterRow, []journal.Change, func() ([]bool, error)) ([]bool, error) {
			return nil, errRefusedCommit
		}},
			errs: map[string]error{"a": errRefusedCommit, "b": errRefusedCommit}},
		"around panics": {letters: "a", many: Batch{Around: func(context.Context, []journal.LetterRow, []journal.Change, func() ([]bool, error)) ([]bool, error) {
			panic("full")
		}},
			errs: map[string]error{"a": ErrPanicked}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cs, j, letters := memoryCases(c.letters)
			j.journalFaults = c.faults
			for _, f := range letters {
				if strings.Contains(c.changed, f.Run.RetryKey) {
					j.letters[f.Run.ID].Case.Head.Seq++
				}
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if c.cancel {
				cancel()
			}
			got, err := cs.ApplyMany(ctx, letters, func(f journal.LetterRow) (journal.Change, error) {
				switch name := f.Run.RetryKey; {
				case strings.Contains(c.refused, name):
					return journal.Change{}, refused
				case strings.Contains(c.panics, name):
					panic("no such letter")
				}
				return leaves(f)
			}, c.many)
			if !errors.Is(err, c.wantErr) {
				t.Errorf("error %v", err)
			}
			if c.anyOrder {
				slices.Sort(j.batches)
				j.written = string(slices.Sorted(slices.Values([]byte(j.written))))
			}
			if !slices.Equal(j.batches, c.batches) || j.alone != c.alone || j.written != c.written {
				t.Errorf("batches %q, alone %q, written %q", j.batches, j.alone, j.written)
			}
			if len(got) != len(letters) {
				t.Fatalf("%d results", len(got))
			}
			for i, r := range got {
				name := letters[i].Run.RetryKey
				want := c.errs[name]
				decided := strings.Contains(c.refused+c.panics, name)
				if r.Letter.Run.ID != letters[i].Run.ID || !errors.Is(r.Err, want) || (r.Err == nil) != (r.Change.After != nil) || r.Decided != decided {
					t.Errorf("%s: %v, decided %v, change %v", name, r.Err, r.Decided, r.Change.After != nil)
				}
			}
		})
	}
}

// byLetterCase groups letters by whether their names are in upper case.
func byLetterCase(f journal.LetterRow) string {
	if strings.ToUpper(f.Run.RetryKey) == f.Run.RetryKey {
		return "upper"
	}
	return "lower"
}

// A letter that changes while it is decided on is decided on again. One that is not as planned
// is not.
func TestApplyDecidesAgainUnlessTheLetterWasPlanned(t *testing.T) {
	t.Parallel()
	cs, j, letters := memoryCases("a")
	id := letters[0].Run.ID
	decided := 0
	change := func(f journal.LetterRow) (journal.Change, error) {
		if decided++; decided == 1 {
			j.letters[id].Case.Head.Seq++
		}
		return leaves(f)
	}
	f, ch, err := cs.Apply(context.Background(), "acme", id, change)
	if err != nil || decided != 2 || f.Case.Head.Seq != 2 || ch.Before.Case.Head.Seq != 2 || j.written != "a" {
		t.Errorf("decided %d times on head %d, written %q: %v", decided, f.Case.Head.Seq, j.written, err)
	}
	planned := Guard{Head: &letters[0].Case.Head}
	if _, _, err := cs.Apply(context.Background(), "acme", id, planned.Letter(change)); !errors.Is(err, ErrLetterChanged) || decided != 2 {
		t.Errorf("decided %d times: %v", decided, err)
	}
	if err := cs.ApplyAsRead(context.Background(), letters[0], change); !errors.Is(err, ErrLetterChanged) || decided != 3 || j.written != "a" {
		t.Errorf("decided %d times, written %q: %v", decided, j.written, err)
	}
	if _, _, err := cs.Apply(context.Background(), "other", id, change); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("of another tenant: %v", err)
	}
}
