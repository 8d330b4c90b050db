package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// retentionActor is whom the receipts of retention name.
const retentionActor = "system:retention"

// pruneBatch is how many letters share an archive file and a commit.
const pruneBatch = 500

// Why retention takes a letter, as its receipt says.
const (
	expiredByAge   = "max_age"
	expiredByCount = "max_count"
)

// PruneReport is what one round of the pruner did, over all tenants.
type PruneReport struct {
	Ran        bool  // false: another process prunes, and this one did nothing
	Announced  int   // letters whose end was announced
	Pruned     int   // letters taken
	Failed     int   // letters that could not be announced or taken, and are tried again in the next round
	Unarchived int64 // letters of settlements whose retention is over, and which stay because there is no archive
}

// pruneCounts are of one process.
type pruneCounts struct {
	rounds, announced, pruned, failed atomic.Uint64
	unarchived                        atomic.Int64
}

// RetentionStats are counts of one process; Unarchived is as the last round found it.
type RetentionStats struct {
	Rounds     uint64 // of the pruner that were carried through
	Announced  uint64 // letters whose end was announced
	Pruned     uint64 // letters whose retention was over
	Failed     uint64 // times that a letter could not be announced or taken
	Unarchived int64  // letters of settlements that stay beyond their retention because there is no archive
}

func (p *pruneCounts) read() RetentionStats {
	return RetentionStats{Rounds: p.rounds.Load(), Announced: p.announced.Load(), Pruned: p.pruned.Load(), Failed: p.failed.Load(), Unarchived: p.unarchived.Load()}
}

// initRetention sets up how letters of the families are kept.
func (s *Service) initRetention(c Config, families []background.Family) (err error) {
	names := make([]string, len(families))
	for i, f := range families {
		names[i] = f.Name()
	}
	if s.pruneEvery = c.PruneEvery; s.pruneEvery <= 0 {
		s.pruneEvery = 5 * time.Minute
	}
	s.archive = c.Archive
	s.retention, err = newRetentions(c.Retention, names)
	return err
}

// pruneLoop prunes now and then, until ctx ends.
func (s *Service) pruneLoop(ctx context.Context) {
	tick := time.NewTicker(s.pruneEvery)
	defer tick.Stop()
	failing := false
	for {
		_, err := s.Prune(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			s.log.Error("letters can't be pruned, trying on", zap.Error(err))
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Prune makes one round of retention, as Run does every few minutes: it announces the
// end of letters that expire soon, once for each, and takes those whose retention is
// over, oldest first, in batches: into the archive, then off the list of letters, with
// a receipt that names the archive file. Held letters and unknown money are never
// taken, and settlements only into an archive. Nothing is taken for its age
// before the end that was announced, which is never less than seven days (of what is kept
// for less than 28 days: a quarter of that) after the announcement, also when letters have
// come to be kept for less meanwhile; what is too many goes without. A letter, tenant or family of which nothing can be done hinders
// no other: it is counted in PruneReport.Failed, its error is returned with those of the
// others when the round is over, and the next round tries again.
// Only one process prunes at a time; PruneReport.Alone says whether it was this.
func (s *Service) Prune(ctx context.Context) (PruneReport, error) {
	round := &pruneRound{Service: s}
	ran, err := s.journal.ExclusivePrune(ctx, func() error {
		var errs []error
		for _, rule := range s.retention.all() {
			errs = append(errs, round.applyRule(ctx, rule))
		}
		return errors.Join(errs...)
	})
	if round.report.Ran = ran; !ran {
		return round.report, err
	}
	return round.finish(err)
}

// applyRule applies one rule. What one part of it can't do keeps no other from being done.
func (p *pruneRound) applyRule(ctx context.Context, rule retention) error {
	at := p.now()
	err := p.eachPage(ctx, func(after postgres.LetterRowPosition) ([]postgres.LetterRow, postgres.LetterRowPosition, error) {
		return p.journal.Unannounced(ctx, rule.RetentionScope, rule.announceBefore(at), after, pruneBatch)
	}, func(f []postgres.LetterRow) error { return p.announce(ctx, rule, f, p.now()) })
	if err != nil {
		err = fmt.Errorf("announce the end of letters of %s: %w", rule.Family, err)
	}
	if pruneErr := p.pruneExpired(ctx, rule, at); pruneErr != nil {
		err = errors.Join(err, fmt.Errorf("prune letters of %s: %w", rule.Family, pruneErr))
	}
	return err
}

// pruneExpired takes the letters whose retention is over by one rule.
func (p *pruneRound) pruneExpired(ctx context.Context, rule retention, at time.Time) error {
	if rule.needsArchive() && p.archive == nil {
		n, err := p.journal.CountExpired(ctx, rule.RetentionScope, rule.expiredBefore(at))
		p.report.Unarchived += n
		return err
	}
	err := p.eachPage(ctx, func(after postgres.LetterRowPosition) ([]postgres.LetterRow, postgres.LetterRowPosition, error) {
		return p.journal.Expired(ctx, rule.RetentionScope, rule.expiredBefore(at), at, after, pruneBatch)
	}, func(f []postgres.LetterRow) error { return p.purgeExpired(ctx, rule, expiredByAge, f, p.now()) })
	if rule.maxCount == 0 || ctx.Err() != nil {
		return err
	}
	return errors.Join(err, p.eachPage(ctx, func(after postgres.LetterRowPosition) ([]postgres.LetterRow, postgres.LetterRowPosition, error) {
		return p.journal.OverCount(ctx, rule.RetentionScope, rule.maxCount, after, pruneBatch)
	}, func(f []postgres.LetterRow) error { return p.purgeExpired(ctx, rule, expiredByCount, f, p.now()) }))
}

// purgeExpired takes letters whose retention is over.
func (p *pruneRound) purgeExpired(ctx context.Context, rule retention, why string, letters []postgres.LetterRow, at time.Time) error {
	var due []postgres.LetterRow
	for _, f := range letters {
		if purgeGate(f) == "" && (why == expiredByCount || rule.expiredAt(f, at)) {
			due = append(due, f)
		}
	}
	done, err := p.purgeLetters(ctx, due, at, func(f postgres.LetterRow, archive string) receipts.Draft {
		return receipts.Draft{Run: f.Run.ID, Subtype: receipts.RetentionExpired, Actor: retentionActor, At: at, Payload: receipts.Payload{
			ReasonCode: why, Reason: "its retention is over", Archive: archive, ExpiresAt: laterOf(f.Annotations.RetentionEndsAt, rule.expiresAt(f.Run.DeadAt)), DeadLetteredAt: f.Run.DeadAt}}
	})
	p.report.Pruned += len(done)
	p.pruneCounts.pruned.Add(uint64(len(done)))
	return err
}

// announce announces the end of letters, once for each.
func (p *pruneRound) announce(ctx context.Context, rule retention, letters []postgres.LetterRow, at time.Time) error {
	var changes []postgres.Change
	for _, f := range letters {
		if purgeGate(f) != "" || !f.Annotations.RetentionEndsAt.IsZero() {
			continue
		}
		annotations := f.Annotations
		annotations.RetentionEndsAt = rule.announcedEnd(f.Run.DeadAt, at)
		ch := annotationChange(f, newID(), annotations)
		ch.Drafts = []receipts.Draft{{Run: f.Run.ID, Subtype: receipts.RetentionEnding, Actor: retentionActor, At: at, Payload: receipts.Payload{
			ExpiresAt: annotations.RetentionEndsAt, DeadLetteredAt: f.Run.DeadAt}}}
		changes = append(changes, ch)
	}
	if len(changes) == 0 {
		return nil
	}
	done, err := p.applyLetterChanges(ctx, changes)
	for _, ok := range done {
		if ok {
			p.report.Announced++
			p.pruneCounts.announced.Add(1)
		}
	}
	return err
}

// Expiring counts the letters of each family, over all tenants, that retention will
// take within a time, or would have taken already if it could.
func (s *Service) Expiring(ctx context.Context, within time.Duration) (map[string]int64, error) {
	out, at := map[string]int64{}, s.now()
	for _, rule := range s.retention.all() {
		n, err := s.journal.CountExpired(ctx, rule.RetentionScope, rule.expiredBefore(at.Add(within)))
		if err != nil {
			return nil, err
		}
		out[rule.Family] += n
	}
	return out, nil
}

// ExpiresAt is when the retention of a letter ends, if it is open then, nobody holds
// it and its money is not unknown.
func (s *Service) ExpiresAt(family, queue string, died time.Time) time.Time {
	return s.retention.ruleFor(family, queue).expiresAt(died)
}

// When a round stops trying, until the next one. Parts of a page are tried largest
// first, so that what is left untried then is hardly ever more than what fails.
const (
	// tenantFailureLimit is how many tries in a row may fail before the letters of a tenant in a
	// page are left.
	tenantFailureLimit = 24
	// skipTenantAfterPages is in how many pages in a row a tenant's letters are left before the
	// others of it are passed by.
	skipTenantAfterPages = 2
	// degradedAfterFailures is after how many tries in a row that fail, of whatever tenants, it is
	// likely that nothing works, and a tenant has degradedFailureLimit tries in a page: all its letters
	// there, their halves and quarters. Every tenant has its turn all the same, and as soon
	// as anything works, all tries again.
	degradedAfterFailures = 8 * tenantFailureLimit
	degradedFailureLimit  = 7
)

// maxReportedErrors is how many errors of letters a round returns; all are logged.
const maxReportedErrors = 10

// pruneRound is one round of the pruner.
type pruneRound struct {
	*Service
	report     PruneReport
	errs       []error // of letters and tenants, the first few
	incomplete bool    // letters of a tenant were left without being tried
}

// pruneScan is a walk over the pages of one list.
type pruneScan struct {
	*pruneRound
	apply         func([]postgres.LetterRow) error
	skippedPages  map[string]int // pages in a row in which a tenant's letters were left
	failuresInRow int            // tries in a row, of whatever tenants
}

// applyPage does something with letters, by tenant. When that fails it goes on with the
// halves of them, so that a letter that can't be announced or taken hinders no other: it
// is logged and counted, and met again in the next round. The error is that of ctx, or
// says that the journal takes nothing.
func (w *pruneScan) applyPage(ctx context.Context, letters []postgres.LetterRow) error {
	failedOf, skipTenant := map[string]int{}, map[string]bool{}
	for parts := w.byTenant(letters); len(parts) > 0; parts = parts[1:] {
		part, tenant := parts[0], parts[0][0].Run.Tenant
		if skipTenant[tenant] {
			w.countFailed(len(part))
			continue
		}
		err := w.apply(part)
		switch {
		case err == nil:
			w.failuresInRow, failedOf[tenant], w.skippedPages[tenant] = 0, 0, 0
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errJournalUnavailable):
			for _, untried := range parts {
				w.countFailed(len(untried))
			}
			return err
		}
		w.failuresInRow++
		if failedOf[tenant]++; failedOf[tenant] >= w.failureLimit() {
			skipTenant[tenant], w.incomplete = true, true
			w.skippedPages[tenant]++
			w.addError(fmt.Errorf("%d tries in a row of tenant %s: %w", failedOf[tenant], tenant, err))
		}
		if len(part) == 1 {
			w.skipLetter(part[0], err)
			continue
		}
		parts = append(parts, part[:len(part)/2], part[len(part)/2:])
	}
	return nil
}

// failureLimit is how many tries in a row may fail now before the letters of a tenant in a
// page are left.
func (w *pruneScan) failureLimit() int {
	if w.failuresInRow >= degradedAfterFailures {
		return degradedFailureLimit
	}
	return tenantFailureLimit
}

// byTenant gives the letters of a page by tenant, but for those of tenants that are
// passed by.
func (w *pruneScan) byTenant(letters []postgres.LetterRow) (parts [][]postgres.LetterRow) {
	at := map[string]int{}
	for _, f := range letters {
		if w.skippedPages[f.Run.Tenant] >= skipTenantAfterPages {
			w.countFailed(1)
			continue
		}
		n, known := at[f.Run.Tenant]
		if !known {
			n = len(parts)
			at[f.Run.Tenant], parts = n, append(parts, nil)
		}
		parts[n] = append(parts[n], f)
	}
	return parts
}

// skipLetter leaves a letter to the next round.
func (p *pruneRound) skipLetter(f postgres.LetterRow, err error) {
	p.countFailed(1)
	p.log.Error("a letter can't be announced or pruned, others can; it is tried again later",
		zap.Stringer("run", f.Run.ID), zap.String("tenant", f.Run.Tenant), zap.String("family", f.Run.Family), zap.Error(err))
	p.addError(fmt.Errorf("letter %s: %w", f.Run.ID, err))
}

func (p *pruneRound) addError(err error) {
	if len(p.errs) < maxReportedErrors {
		p.errs = append(p.errs, err)
	}
}

func (p *pruneRound) countFailed(letters int) {
	p.report.Failed += letters
	p.pruneCounts.failed.Add(uint64(letters))
}

// eachPage walks a list page by page, and does something with the letters of each. The
// next page begins behind the last letter, whether that could be taken or not. Only a
// list that can't be read ends the walk, or a journal that takes nothing.
func (p *pruneRound) eachPage(ctx context.Context, list func(after postgres.LetterRowPosition) ([]postgres.LetterRow, postgres.LetterRowPosition, error), do func([]postgres.LetterRow) error) error {
	var after postgres.LetterRowPosition
	w := pruneScan{pruneRound: p, apply: do, skippedPages: map[string]int{}}
	for {
		page, last, err := list(after)
		if err != nil || last == after {
			return err
		}
		if len(page) > 0 {
			if err := w.applyPage(ctx, page); err != nil {
				return err
			}
		}
		after = last
	}
}

// finish tells what the round came to. It was carried through when every list was read to
// its end, and tried, whatever came of single letters.
func (p *pruneRound) finish(err error) (PruneReport, error) {
	if err == nil && !p.incomplete {
		p.pruneCounts.rounds.Add(1)
		if was := p.pruneCounts.unarchived.Swap(p.report.Unarchived); was == 0 && p.report.Unarchived > 0 {
			p.log.Warn("letters of settlements are over their retention and stay: there is no archive to put them into", zap.Int64("letters", p.report.Unarchived))
		}
	}
	return p.report, errors.Join(append(p.errs, err)...)
}
