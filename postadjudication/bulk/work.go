package bulk

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// chunkMax is how many items are started before their outcomes are recorded: at most so many
// outcomes are in doubt when a process dies.
const chunkMax = 250

// planWork is the work on one plan by the process that holds its lock. The lock alone does not
// exclude others from an item. Each change of a letter is guarded by the head of its case as
// planned, so that it happens at most once, and its receipt, the first after that head that
// decides anything, names the plan. If the guard of an item fails, this plan did the item if
// that receipt names it; otherwise somebody else changed it.
type planWork struct {
	*Planner
	plan plans.Plan
	spec Spec
}

// work works on a plan until it is done or ctx is done. Items that were started are left without an
// outcome only if ctx is done or the journal is unavailable. It returns errAttemptRunning if the runs
// of the remaining items are being called, or the journal was unavailable for them: then the plan is
// worked on again.
func (p *Planner) work(ctx context.Context, b plans.Plan) error {
	spec, err := specOf(b)
	if err != nil {
		return err
	}
	w := planWork{p, b, spec}
	if b.State == Cancelled {
		return w.settleCancelled(context.WithoutCancel(ctx))
	}
	if p.lacksArchive(spec) {
		return w.pause(ctx, "the plan was made with an archive, and the process that took it has none")
	}
	size, last, called := chunkSize(b.Throttle), int64(0), false
	for ctx.Err() == nil {
		begun := time.Now()
		items, err := p.stored.PendingItems(ctx, b.ID, last, size)
		switch {
		case err != nil:
			return err
		case len(items) == 0 && called:
			return errAttemptRunning
		case len(items) == 0:
			return w.finishPlan(ctx)
		}
		last = items[len(items)-1].Position
		outage := w.applyItems(ctx, items)
		done := withOutcome(items)
		called = called || len(done) < len(items) && ctx.Err() == nil
		if err := w.recordOutcomes(ctx, done); err != nil {
			return err
		}
		if outage != nil {
			return w.pauseForArchive(ctx, outage)
		}
		if wait := minBatchTime(len(done), b.Throttle) - time.Since(begun); wait > 0 && !casework.Sleep(ctx, wait, nil) {
			break
		}
	}
	return ctx.Err()
}

// chunkSize returns how many items are started at once: few if throttled, so that they are
// spread evenly.
func chunkSize(throttle int) int {
	if throttle == 0 {
		return chunkMax
	}
	return min(chunkMax, max(1, throttle/4))
}

// minBatchTime returns the minimum time for a number of items.
func minBatchTime(items, throttle int) time.Duration {
	if throttle == 0 {
		return 0
	}
	return time.Duration(items) * time.Second / time.Duration(throttle)
}

// applyItems acts on items, and sets their outcomes. Once ctx is done it starts no further item.
// It returns the error of an archive that takes no file: see applyTogether.
func (w *planWork) applyItems(ctx context.Context, items []plans.Item) (outage error) {
	switch Action(w.plan.Action) {
	case Fork, Purge, Mark, Hold, Release:
		return w.applyTogether(ctx, items)
	default:
		w.applyEach(ctx, items)
		return nil
	}
}

// applyEach acts on items one by one, as many at once as the plan says.
func (w *planWork) applyEach(ctx context.Context, items []plans.Item) {
	var wg sync.WaitGroup
	next := make(chan *plans.Item)
	for range min(w.plan.Parallel, len(items)) {
		wg.Go(func() {
			for i := range next {
				if ctx.Err() == nil {
					w.applyUntilOutcome(ctx, i)
				}
			}
		})
	}
	for n := range items {
		if ctx.Err() == nil {
			next <- &items[n]
		}
	}
	close(next)
	wg.Wait()
}

func withOutcome(items []plans.Item) (out []plans.Item) {
	for _, i := range items {
		if i.Outcome != "" {
			out = append(out, i)
		}
	}
	return out
}

// How often and at which pauses an item is retried while its outcome is unknown, because the
// database is busy or unreachable.
const (
	maxTries = 60
	pauseMin = 20 * time.Millisecond
	pauseMax = time.Second
)

// applyUntilOutcome acts on an item until it has an outcome, its run is being called, or ctx is
// done. It does not interrupt a started try when ctx is done, since that would leave its
// outcome in doubt.
func (w *planWork) applyUntilOutcome(ctx context.Context, i *plans.Item) {
	workCtx := context.WithoutCancel(ctx)
	for try, pause := 1, pauseMin; ; try, pause = try+1, min(2*pause, pauseMax) {
		err := casework.RecoverPanic(func() error { return w.applyItem(workCtx, i) })
		if err != nil {
			i.NewRun, err = w.diagnose(workCtx, i, err)
		}
		if errors.Is(err, errAttemptRunning) {
			return
		}
		setOutcome(i, err)
		if i.Outcome == "" && try >= w.tries {
			i.Outcome, i.Error = string(OutcomeFailed), validate.Clean(err.Error(), 1024)
		}
		if i.Outcome != "" || !casework.Sleep(ctx, pause, nil) {
			return
		}
	}
}

// diagnose examines a failed item. If its case is not as planned, then either this plan did it
// before, or it is stale, whatever the error was.
func (w *planWork) diagnose(ctx context.Context, i *plans.Item, err error) (background.RunID, error) {
	if outcomeOf(err) == "" {
		return background.RunID{}, err
	}
	if !errors.Is(err, casework.ErrLetterChanged) {
		now, failed := w.journal.Cases.Snapshot(ctx, i.Run)
		if failed != nil || now.Case.Head == i.Head {
			return background.RunID{}, errors.Join(err, failed)
		}
	}
	return w.doneByPlan(ctx, i)
}

// recordOutcomes writes outcomes and retries on errors: until they are written, they are in
// doubt.
func (w *planWork) recordOutcomes(ctx context.Context, items []plans.Item) error {
	if len(items) == 0 {
		return nil
	}
	for try, pause := 1, pauseMin; ; try, pause = try+1, min(2*pause, pauseMax) {
		err := w.stored.RecordItems(ctx, w.plan.ID, items)
		if err == nil || try == maxTries || !casework.Sleep(ctx, pause, nil) {
			return err
		}
	}
}

// finishPlan closes a plan that has no items left.
func (w *planWork) finishPlan(ctx context.Context) error {
	if err := w.conclude(ctx); err != nil {
		return err
	}
	_, err := w.change(ctx, w.plan.Tenant, w.plan.ID, systemActor, "every item has an outcome", func(b *plans.Plan, left bool) error {
		if b.State != Running || left {
			return journal.ErrNoChange
		}
		b.State, b.EndedAt = Done, w.now()
		return nil
	})
	return err
}

// settleCancelled records what a process did for a plan before it died without recording it, if
// the plan was cancelled meanwhile.
func (w *planWork) settleCancelled(ctx context.Context) error {
	for last := int64(0); ; {
		items, err := w.stored.PendingItems(ctx, w.plan.ID, last, chunkMax)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			return w.stored.MarkOutcomesKnown(ctx, w.plan.ID)
		}
		last = items[len(items)-1].Position
		unchanged, err := w.unchanged(ctx, items)
		if err != nil {
			return err
		}
		for n := range items {
			if unchanged[items[n].Run] {
				continue
			}
			made, err := w.doneByPlan(ctx, &items[n])
			switch {
			case err == nil:
				items[n].Outcome, items[n].NewRun = string(OutcomeDone), made
			case !errors.Is(err, casework.ErrLetterChanged) && !errors.Is(err, errContended):
				return err
			}
		}
		if err := w.recordOutcomes(ctx, withOutcome(items)); err != nil {
			return err
		}
	}
}

// unchanged returns the runs of items whose cases are as they were planned.
func (w *planWork) unchanged(ctx context.Context, items []plans.Item) (map[background.RunID]bool, error) {
	planned := make(map[background.RunID]receipts.Head, len(items))
	for _, i := range items {
		planned[i.Run] = i.Head
	}
	found, err := w.journal.Letters.ByID(ctx, slices.Collect(maps.Keys(planned))...)
	out := make(map[background.RunID]bool, len(found))
	for _, f := range found {
		out[f.Run.ID] = f.Case.Head == planned[f.Run.ID]
	}
	return out, err
}

// parallelBatches is how many commits run concurrently: while one waits for the disk or
// sends notifications, the other is prepared.
const parallelBatches = 2

// errContended means that the letter was locked, or changed while it was read.
var errContended = errors.New("bulk: the letter is being changed by another process")

// applyTogether acts on items in shared commits, until each has an outcome, ctx is done, or the
// journal was unavailable in the last try. It returns the error of an archive that took none of
// their files for archiveLimit. If it took some of them, the others fail with that error: the
// fault may be theirs.
func (w *planWork) applyTogether(ctx context.Context, items []plans.Item) (outage error) {
	archive := newArchiveOutage(w.archiveLimit)
	for try, pause := 1, pauseMin; ; try, pause = try+1, min(2*pause, pauseMax) {
		pending := map[background.RunID]*plans.Item{}
		for n := range items {
			if items[n].Outcome == "" {
				pending[items[n].Run] = &items[n]
			}
		}
		if len(pending) == 0 || try > 1 && !casework.Sleep(ctx, pause, nil) {
			return nil
		}
		failures := map[background.RunID]error{}
		archive.begin()
		err := casework.RecoverPanic(func() error { return w.tryTogether(ctx, pending, failures, archive) })
		if err != nil && try == 1 {
			w.log.Warn("a batch of a bulk plan failed, retrying", zap.Stringer("bulk", w.plan.ID), zap.Error(err))
		}
		outage, over := archive.state()
		switch {
		case ctx.Err() != nil, outage == nil && try < w.tries, outage != nil && !over:
		case outage != nil && !archive.took:
			return outage
		default:
			failPending(pending, failures, err)
			return nil
		}
	}
}

// failPending sets the outcome of items that have none after the last try, by the error of the
// item or of the try. If the journal was unavailable for an item, it gets no outcome: the fault is
// not its own, it may even be done, and the plan is worked on again.
func failPending(pending map[background.RunID]*plans.Item, failures map[background.RunID]error, err error) {
	away := errors.Is(err, casework.ErrJournalUnavailable) || len(failures) == 0 && journal.IsUnavailable(err)
	for run, i := range pending {
		failed := failures[run]
		unanswered := journal.IsUnavailable(failed) && !errors.Is(failed, background.ErrBusy)
		if i.Outcome != "" || unanswered || failed == nil && away {
			continue
		}
		i.Outcome, i.Error = string(OutcomeFailed), validate.Clean(cmp.Or(failed, err, errContended).Error(), 1024)
	}
}

// tryTogether acts on the letters of pending items, and sets the outcomes that it knows. failures
// gets the errors of items that are to be retried; the error is that of a try that could not be
// made, or the first of them.
func (w *planWork) tryTogether(ctx context.Context, pending map[background.RunID]*plans.Item, failures map[background.RunID]error, archive *archiveOutage) error {
	workCtx := context.WithoutCancel(ctx)
	found, err := w.journal.Letters.ByID(workCtx, slices.Collect(maps.Keys(pending))...)
	if err != nil {
		return err
	}
	decide, m, err := w.letterAction(workCtx, found)
	if err != nil {
		return err
	}
	m.Tried = archive.tried
	results, err := w.applier.ApplyMany(ctx, found, func(f journal.LetterRow) (journal.Change, error) {
		if f.Run.Tenant != w.plan.Tenant {
			return journal.Change{}, casework.ErrLetterChanged
		}
		return w.guardFor(pending[f.Run.ID]).Letter(decide)(f)
	}, m)
	unread := maps.Clone(pending)
	for _, r := range results {
		i := pending[r.Letter.Run.ID]
		delete(unread, i.Run)
		if failed := w.setResult(workCtx, i, r); i.Outcome == "" && failed != nil && !errors.Is(failed, errContended) {
			failures[i.Run], err = failed, cmp.Or(err, failed)
		}
	}
	for id, i := range unread {
		if _, failed := w.journal.Cases.Snapshot(workCtx, id); failed != nil { // such as ErrUnreadable
			failures[id] = failed
			setOutcome(i, failed)
		}
	}
	return err
}

// setResult sets the outcome of an item by the result of its letter, if that decides it. It
// returns the error of a letter that failed.
func (w *planWork) setResult(ctx context.Context, i *plans.Item, r casework.Result) (failed error) {
	switch {
	case r.Err == nil:
		i.Outcome = string(OutcomeDone)
		if r.Change.NewRun != nil {
			i.NewRun = r.Change.NewRun.ID
		}
	case r.Decided && errors.Is(r.Err, casework.ErrLetterChanged): // it is not as planned
		i.NewRun, failed = w.doneByPlan(ctx, i)
		setOutcome(i, failed)
	case r.Decided:
		if setOutcome(i, r.Err); i.Outcome == "" { // a retry would fail the same way
			i.Outcome, i.Error = string(OutcomeFailed), validate.Clean(r.Err.Error(), 1024)
		}
	case errors.Is(r.Err, casework.ErrLetterChanged), errors.Is(r.Err, casework.ErrNotTried): // the next try reads it again
	default:
		i.NewRun, failed = w.diagnose(ctx, i, r.Err)
		setOutcome(i, failed)
	}
	return failed
}

// letterAction returns the decision of the plan's action and how it is committed. Forks and
// purges wait for no lock: a locked letter is retried.
func (w *planWork) letterAction(ctx context.Context, letters []journal.LetterRow) (decide casework.LetterDecision, m casework.Batch, err error) {
	actor, reason, at := w.plan.StartedBy, w.plan.Reason, w.now()
	m = casework.Batch{Commits: parallelBatches}
	switch Action(w.plan.Action) {
	case Fork:
		m.Around = w.applier.Notifying
		decide, err = w.forkDecision(ctx, letters, at)
		return decide, m, err
	case Purge:
		return casework.Purging(func(f journal.LetterRow) receipts.Draft {
			return receipts.Draft{Run: f.Run.ID, Subtype: receipts.Purged, Actor: actor, At: at, Payload: receipts.Payload{Reason: reason, DeadLetteredAt: f.Run.DeadAt}}
		}), w.applier.Archiving(at, m), nil
	case Mark:
		decide = casework.Marking(actor, reason, w.spec.Reprocess, w.spec.Review, at)
	case Hold:
		decide = casework.Holding(actor, reason, at)
	case Release:
		decide = casework.Releasing(actor, reason, at)
	default:
		return nil, m, unknownAction(Action(w.plan.Action))
	}
	m.Alone = w.plan.Parallel
	return decide, m, nil
}

// forkDecision returns the decision to fork a letter as Letters.Fork does, and to refuse held letters:
// the plan does not name them.
func (w *planWork) forkDecision(ctx context.Context, letters []journal.LetterRow, at time.Time) (casework.LetterDecision, error) {
	policy, err := w.forkPolicy()
	if err != nil {
		return nil, err
	}
	setsPolicies, err := w.setsPolicies(ctx)
	if err != nil {
		return nil, err
	}
	facts, err := w.applier.Settlements.ReadForkFacts(ctx, at, letters...)
	if err != nil {
		return nil, err
	}
	if remote := slices.IndexFunc(letters, func(f journal.LetterRow) bool {
		return f.Run.Remote && f.Run.Family != casework.Family && casework.OpenGate(f.Snapshot) == ""
	}); remote >= 0 {
		if err := w.applier.AddForkQueue(ctx, &letters[remote].Snapshot, w.spec.Queue, at); err != nil {
			return nil, err
		}
	}
	return func(f journal.LetterRow) (journal.Change, error) {
		k := casework.Forking{
			Facts: facts, Actor: w.plan.StartedBy, Reason: w.plan.Reason, Policy: policy, Queue: w.spec.Queue, Queues: w.applier.Engine.Queues,
			Run: forkID(w.plan, f.Run.ID), Replayed: true,
		}
		ch, err := k.Decide(f)
		if err == nil && f.Annotations.Held {
			err = casework.RefusedBy(refusal.GateHeld, f.Snapshot)
		}
		if err == nil {
			err = w.attemptsWithinReach(ctx, f.Run.Family, policy, setsPolicies)
		}
		return ch, err
	}, nil
}

func (w *planWork) forkPolicy() (*retrypolicy.Policy, error) {
	if w.spec.Policy == "" {
		return nil, nil
	}
	p, err := retrypolicy.Parse(w.spec.Policy)
	return &p, err
}

// applyItem applies an action that takes letters one by one, in the name of who started the
// plan, with the decisions and gates of the method that does it with one letter.
func (w *planWork) applyItem(ctx context.Context, i *plans.Item) (err error) {
	by := w.guardFor(i)
	switch Action(w.plan.Action) {
	case Reconcile:
		err = w.applier.ReconcileByLookup(ctx, w.plan.Tenant, i.Run, w.plan.StartedBy, by)
	case Finding:
		err = w.recordFinding(ctx, i, by)
	case Free:
		err = w.freeReservation(ctx, i, by)
	case Return:
		err = w.recordReturns(ctx, i, by)
	default:
		err = unknownAction(Action(w.plan.Action))
	}
	return err
}

// forkID returns the id of the run that a plan forks from a letter. It is deterministic, so
// that a second fork of the letter could not be written. It is a UUIDv7 of the plan's start
// time.
func forkID(b plans.Plan, letter background.RunID) background.RunID {
	sum := sha256.Sum256(append(append([]byte("recourse/fork/1"), b.ID[:]...), letter[:]...))
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(b.StartedAt.UnixMilli()))
	id := uuid.UUID(sum[:16])
	copy(id[:6], millis[2:])
	id[6], id[8] = 0x70|id[6]&0x0f, 0x80|id[8]&0x3f
	return background.RunID(id)
}
