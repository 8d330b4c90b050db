package casework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// Result is what became of one letter of ApplyMany.
type Result struct {
	Letter  journal.LetterRow
	Change  journal.Change // that was written; zero unless err is nil
	Err     error          // nil: written. ErrLetterChanged: locked or changed since it was read. ErrNotTried
	Decided bool           // the decision returned err: it would again
}

// Batch says how ApplyMany commits. The zero value means one commit after another, each of as
// many letters as possible.
type Batch struct {
	// Around is called in place of each write. It calls write at most once, and returns what write returned, or
	// an error if it did not call it. Its ctx may be done, but write is not interrupted. written reports for each
	// letter whether its change was written. nil: write is called.
	Around func(ctx context.Context, letters []journal.LetterRow, changes []journal.Change, write func() (written []bool, err error)) ([]bool, error)
	// Unarchived: Archiving keeps no copy.
	Unarchived bool
	// group is a key: letters of different groups share no commit. nil: all may.
	group func(journal.LetterRow) string
	// Commits is how many commits run at once; 0: 1.
	Commits int
	// Alone is how many of the letters that were locked or changed are tried alone at once, each
	// waiting for its lock; 0: none, they end as ErrLetterChanged.
	Alone int
	// Tried is called after each write of a number of letters, with its error, also concurrently. If
	// it returns false, no other write begins. nil: all are tried.
	Tried func(letters int, err error) bool
}

var (
	// ErrNotTried means that the work was ended before the letter's own result was known.
	ErrNotTried = errors.New("postadjudication: the letter was not tried")

	// ErrJournalUnavailable means that the journal accepts no write, whatever the letters.
	ErrJournalUnavailable = errors.New("postadjudication: the journal is unavailable")
)

// ApplyMany applies a decision to letters as they were read, each of another case, in as few
// commits as possible. The letters of a commit that fails are tried again in halves, the largest
// parts first, so that a failing letter does not block the others. The results are in the order
// of the letters. The error is ErrJournalUnavailable if the journal accepts no write: then the
// others are ErrNotTried. Once ctx ends no write begins; a write is never interrupted.
//
// A commit whose result is unknown is not repeated: if it was written, the letters have other
// heads, and are ErrLetterChanged.
func (c *Applier) ApplyMany(ctx context.Context, letters []journal.LetterRow, decide LetterDecision, m Batch) ([]Result, error) {
	b := letterBatch{Applier: c, Batch: m, decide: decide, results: make([]Result, len(letters))}
	for i := range letters {
		b.results[i] = Result{Letter: letters[i], Err: ErrNotTried}
	}
	var wg sync.WaitGroup
	for _, parts := range b.parts() {
		wg.Go(func() { b.applyParts(ctx, parts) })
	}
	wg.Wait()
	if m.Alone > 0 {
		b.applyEach(ctx)
	}
	if err := b.unavailable.Load(); err != nil {
		return b.results, *err
	}
	return b.results, nil
}

// letterBatch is one call of ApplyMany.
type letterBatch struct {
	*Applier
	Batch
	decide      LetterDecision
	results     []Result
	ended       atomic.Bool
	unavailable atomic.Pointer[error]
}

// parts divides the letters into parts, each for one commit and of one group. It returns one list
// of parts for each of the commits that run at once.
func (b *letterBatch) parts() [][][]*Result {
	var keys []string
	groups := map[string][]*Result{}
	for i := range b.results {
		key := ""
		if b.group != nil {
			key = b.group(b.results[i].Letter)
		}
		if groups[key] == nil {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], &b.results[i])
	}
	out := make([][][]*Result, max(1, b.Commits))
	for _, key := range keys {
		of := groups[key]
		n := 0
		for part := range slices.Chunk(of, (len(of)+len(out)-1)/len(out)) {
			out[n] = append(out[n], part)
			n++
		}
	}
	return out
}

// applyParts applies the decision to parts, each in one commit, and then to the halves of those
// whose commit failed.
func (b *letterBatch) applyParts(ctx context.Context, parts [][]*Result) {
	for ; len(parts) > 0 && b.goesOn(ctx); parts = parts[1:] {
		failed := b.applyPart(ctx, parts[0])
		if half := len(failed) / 2; half > 0 {
			parts = append(parts, failed[:half], failed[half:])
		}
	}
}

func (b *letterBatch) goesOn(ctx context.Context) bool { return ctx.Err() == nil && !b.ended.Load() }

// applyPart applies the decision to letters in one commit. It returns the letters of a commit
// that failed.
func (b *letterBatch) applyPart(ctx context.Context, part []*Result) (failed []*Result) {
	changes, due := b.decideEach(part)
	if len(due) == 0 {
		return nil
	}
	written, err := b.commit(ctx, due, changes, func() ([]bool, error) {
		written, err := b.Letters.ApplyLetterBatch(context.WithoutCancel(ctx), changes)
		if journal.IsUnavailable(err) {
			err = fmt.Errorf("%w: %w", ErrJournalUnavailable, err)
		}
		return written, err
	})
	if errors.Is(err, ErrJournalUnavailable) {
		b.unavailable.Store(&err)
		b.ended.Store(true)
		return nil
	}
	for n, d := range due {
		switch {
		case err == nil && written[n]:
			d.Change, d.Err = changes[n], nil
			b.reportReceipts(d.Letter, changes[n])
		case err == nil:
			d.Err = ErrLetterChanged
		case len(due) == 1:
			d.Err = refusedByCommit(d.Letter, err)
		}
	}
	if err == nil {
		return nil
	}
	return due
}

// decideEach returns the changes of letters, and their letters. Those that the decision refuses
// have their result.
func (b *letterBatch) decideEach(part []*Result) (changes []journal.Change, due []*Result) {
	for _, d := range part {
		var ch journal.Change
		err := RecoverPanic(func() (err error) { ch, err = b.decide(d.Letter); return err })
		if err != nil {
			d.Err, d.Decided = err, true
			continue
		}
		setTransition(&ch, NewID())
		changes, due = append(changes, ch), append(due, d)
	}
	return changes, due
}

// commit writes changes, and ends the batch if tried says so.
func (b *letterBatch) commit(ctx context.Context, due []*Result, changes []journal.Change, write func() ([]bool, error)) (written []bool, err error) {
	err = RecoverPanic(func() (err error) {
		if b.Around == nil {
			written, err = write()
			return err
		}
		letters := make([]journal.LetterRow, len(due))
		for n := range due {
			letters[n] = due[n].Letter
		}
		written, err = b.Around(ctx, letters, changes, write)
		return err
	})
	if b.Tried != nil && !b.Tried(len(due), err) {
		b.ended.Store(true)
	}
	return written, err
}

// applyEach applies the decision to each of the letters that were locked or changed, in a commit
// of its own, unless they have changed since they were read.
func (b *letterBatch) applyEach(ctx context.Context) {
	var wg sync.WaitGroup
	next := make(chan *Result)
	for range b.Alone {
		wg.Go(func() {
			for d := range next {
				b.applyAlone(ctx, d)
			}
		})
	}
	for i := range b.results {
		if d := &b.results[i]; !d.Decided && errors.Is(d.Err, ErrLetterChanged) && b.goesOn(ctx) {
			next <- d
		}
	}
	close(next)
	wg.Wait()
}

func (b *letterBatch) applyAlone(ctx context.Context, d *Result) {
	changes, due := b.decideEach([]*Result{d})
	if len(due) == 0 {
		return
	}
	_, d.Err = b.commit(ctx, due, changes, func() ([]bool, error) {
		err := lastTry(b.write(context.WithoutCancel(ctx), d.Letter, changes[0]))
		return []bool{err == nil}, err
	})
	if d.Err == nil {
		d.Change = changes[0]
	}
}

// ErrPanicked is the error of a function that panicked.
var ErrPanicked = errors.New("postadjudication: panicked")

// RecoverPanic calls do and returns its panic, such as of an executor's lookup, as ErrPanicked.
func RecoverPanic(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrPanicked, p)
		}
	}()
	return do()
}

// Notifying notifies workers of the runs that a write created.
func (c *Applier) Notifying(ctx context.Context, _ []journal.LetterRow, changes []journal.Change, write func() ([]bool, error)) ([]bool, error) {
	written, err := write()
	if err != nil {
		return written, err
	}
	for n, ok := range written {
		if ok && changes[n].NewRun != nil {
			c.NotifyRuns(context.WithoutCancel(ctx), changes[n].NewRun)
		}
	}
	return written, nil
}
