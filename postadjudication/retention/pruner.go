package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/every"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// systemActor is the actor in receipts of retention.
const systemActor = "system:retention"

// pruneBatch is how many letters share an archive file and a commit.
const pruneBatch = 500

// boundPages returns for how many pages the bounds of what is over the count are used. Letters that are closed
// meanwhile leave older ones among the newest, so that of few letters each page has its own; of many, a
// twentieth is pruned by one reading, which takes as long as many pages.
func boundPages(bounds []journal.CountBound) int {
	var over int64
	for _, b := range bounds {
		over += b.Over
	}
	return 1 + int(over/(20*pruneBatch))
}

// Reasons of retention, as receipts state them.
const (
	expiredByAge   = "max_age"
	expiredByCount = "max_count"
)

// Report counts what one round of the pruner did, over all tenants.
type Report struct {
	Ran        bool  // false: another process prunes, and this one did nothing
	Announced  int   // letters whose expiry was announced
	Pruned     int   // letters purged
	Failed     int   // letters that could not be announced or purged; the next round retries
	Unarchived int64 // expired letters of settlements that were kept because there is no archive
}

// pruneCounts counts the pruner's work in one process.
type pruneCounts struct {
	rounds, announced, pruned, failed atomic.Uint64
	unarchived                        atomic.Int64
}

// Stats counts the pruner's work in one process. Unarchived is that of the last round.
type Stats struct {
	Rounds     uint64 // completed rounds
	Announced  uint64 // letters whose expiry was announced
	Pruned     uint64 // letters purged
	Failed     uint64 // failures to announce or purge a letter
	Unarchived int64  // expired letters of settlements that are kept because there is no archive
}

// Stats returns what this process did.
func (k *Keeper) Stats() Stats {
	p := &k.counts
	return Stats{Rounds: p.rounds.Load(), Announced: p.announced.Load(), Pruned: p.pruned.Load(), Failed: p.failed.Load(), Unarchived: p.unarchived.Load()}
}

// Keeper keeps dead letters as long as their retention says, and purges them.
type Keeper struct {
	journal *journal.Journal
	applier *casework.Applier
	rules   ruleSet
	archive Archive // may be nil
	every   time.Duration
	now     func() time.Time
	log     *zap.Logger
	counts  pruneCounts
	next    atomic.Int64 // when Run begins its next round, in Unix nanoseconds; 0: Run was not called
}

// NewKeeper returns the keeper of the letters of some families. archive may be nil.
func NewKeeper(of *casework.Applier, families []background.Family, rules []Rule, archive Archive, every time.Duration) (*Keeper, error) {
	names := make([]string, len(families))
	for i, f := range families {
		names[i] = f.Name()
	}
	k := &Keeper{journal: of.Journal, applier: of, archive: archive, every: every, now: of.Now, log: of.Log}
	if k.every <= 0 {
		k.every = 5 * time.Minute
	}
	if archive != nil {
		of.Archive = &letterArchive{archive, archiveWriteTimeout, of.Log}
	}
	var err error
	k.rules, err = newRuleSet(rules, names)
	for i, rule := range rules {
		if rule.Pruning == ToArchive && archive == nil {
			err = errors.Join(err, fmt.Errorf("%w[%d]: its letters are to be archived, and there is no archive", ErrRule, i))
		}
	}
	return k, err
}

// NextAt returns when Run begins its next round; zero: it does not run.
func (k *Keeper) NextAt() time.Time {
	if at := k.next.Load(); at != 0 {
		return time.Unix(0, at).UTC()
	}
	return time.Time{}
}

// firstRoundAfter is when the first round of Run begins: what a process does first is to execute what is
// due.
const firstRoundAfter = 5 * time.Second

// Run prunes at intervals until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	first := min(k.every, firstRoundAfter)
	k.next.Store(k.now().Add(first).UnixNano())
	if !casework.Sleep(ctx, first, nil) {
		return
	}
	failures := every.Failures{Log: k.log, Failed: "can't prune letters, retrying", Again: "letters are pruned again"}
	every.Loop{Interval: k.every, Failures: failures}.Run(ctx, func(ctx context.Context) error {
		k.next.Store(k.now().Add(k.every).UnixNano())
		_, err := k.Prune(ctx)
		return err
	})
}

// Prune runs one round of retention, as Run does at intervals. It announces the expiry of
// letters that expire soon, once for each, and purges expired letters in batches, oldest
// first: each is archived if there is an archive, then closed as purged, with a receipt that names
// the archive file.
//
//   - It never purges held letters and letters with an unknown outcome, and purges letters of
//     settlements only into an archive.
//   - MaxAge purges no letter before its announced expiry. That is at least seven days after the
//     announcement (a quarter of MaxAge if MaxAge is under 28 days), also if MaxAge was shortened
//     meanwhile. MaxCount purges without announcement, and letters of jobs are never announced.
//   - A failing letter, tenant or family does not block others. It is counted in
//     Report.Failed, Prune returns its error after the round, joined with the others, and the
//     next round retries.
//
// Only one process prunes at a time; Report.Ran reports whether this call did.
func (k *Keeper) Prune(ctx context.Context) (Report, error) {
	round := &pruneRound{Keeper: k, prunedJobs: map[string]int{}}
	ran, err := k.journal.Letters.Exclusive(ctx, func() error {
		var errs []error
		for _, rule := range k.rules.all() {
			errs = append(errs, round.applyRule(ctx, rule))
		}
		errs = append(errs, round.recordPrunedJobs(context.WithoutCancel(ctx)))
		return errors.Join(errs...)
	})
	if round.report.Ran = ran; !ran {
		return round.report, err
	}
	return round.finish(err)
}

// applyRule applies one rule. An error of one part does not stop the others.
func (p *pruneRound) applyRule(ctx context.Context, rule parsedRule) error {
	at := p.now()
	if rule.unannounced() {
		if err := p.pruneExpired(ctx, rule, at); err != nil {
			return fmt.Errorf("prune letters of %s: %w", rule.Family, err)
		}
		return nil
	}
	err := p.eachPage(ctx, func(after journal.LetterRowCursor) ([]journal.LetterRow, journal.LetterRowCursor, error) {
		return p.journal.Letters.Unannounced(ctx, rule.RetentionScope, rule.announceBefore(at), after, pruneBatch)
	}, func(f []journal.LetterRow, tried func(int, error) bool) ([]casework.Result, error) {
		return p.announce(ctx, rule, f, tried)
	})
	if err != nil {
		err = fmt.Errorf("announce the end of letters of %s: %w", rule.Family, err)
	}
	if pruneErr := p.pruneExpired(ctx, rule, at); pruneErr != nil {
		err = errors.Join(err, fmt.Errorf("prune letters of %s: %w", rule.Family, pruneErr))
	}
	return err
}

// pruneExpired purges the letters that expired by one rule.
func (p *pruneRound) pruneExpired(ctx context.Context, rule parsedRule, at time.Time) error {
	if rule.needsArchive() && p.archive == nil {
		n, err := p.journal.Letters.CountExpired(ctx, rule.RetentionScope, rule.expiredBefore(at))
		p.report.Unarchived += n
		return err
	}
	err := p.eachPage(ctx, func(after journal.LetterRowCursor) ([]journal.LetterRow, journal.LetterRowCursor, error) {
		if rule.unannounced() {
			return p.journal.Letters.Older(ctx, rule.RetentionScope, rule.expiredBefore(at), after, pruneBatch)
		}
		return p.journal.Letters.Expired(ctx, rule.RetentionScope, rule.expiredBefore(at), at, after, pruneBatch)
	}, func(f []journal.LetterRow, tried func(int, error) bool) ([]casework.Result, error) {
		return p.purgeExpired(ctx, rule, expiredByAge, f, tried)
	})
	if rule.maxCount == 0 || ctx.Err() != nil {
		return err
	}
	var bounds []journal.CountBound
	left := 0 // pages for which the bounds still count
	return errors.Join(err, p.eachPage(ctx, func(after journal.LetterRowCursor) (page []journal.LetterRow, last journal.LetterRowCursor, err error) {
		if left == 0 {
			if bounds, err = p.journal.Letters.CountBounds(ctx, rule.RetentionScope, rule.unannounced(), rule.maxCount); err != nil {
				return nil, after, err
			}
			left = boundPages(bounds)
		}
		left--
		return p.journal.Letters.OverCount(ctx, rule.RetentionScope, rule.unannounced(), bounds, after, pruneBatch)
	}, func(f []journal.LetterRow, tried func(int, error) bool) ([]casework.Result, error) {
		return p.purgeExpired(ctx, rule, expiredByCount, f, tried)
	}))
}

// purgeExpired purges expired letters.
func (p *pruneRound) purgeExpired(ctx context.Context, rule parsedRule, why string, letters []journal.LetterRow, tried func(int, error) bool) ([]casework.Result, error) {
	at := p.now()
	var due []journal.LetterRow
	for _, f := range letters {
		if casework.PurgeGate(f) == "" && (why == expiredByCount || rule.expiredAt(f, at)) {
			due = append(due, f)
		}
	}
	results, err := p.applier.ApplyMany(ctx, due, casework.Purging(func(f journal.LetterRow) receipts.Draft {
		return receipts.Draft{Run: f.Run.ID, Subtype: receipts.RetentionExpired, Actor: systemActor, At: at, Payload: receipts.Payload{
			ReasonCode: why, Reason: "its retention is over", ExpiresAt: casework.Later(f.Annotations.RetentionEndsAt, rule.expiresAt(f.Run.DeadAt)), DeadLetteredAt: f.Run.DeadAt}}
	}), p.applier.Archiving(at, casework.Batch{Tried: tried, Unarchived: rule.pruning == Delete}))
	n := countWritten(results)
	p.report.Pruned += n
	p.counts.pruned.Add(uint64(n))
	if n > 0 && rule.unannounced() {
		p.prunedJobs[letters[0].Run.Tenant] += n
	}
	return results, err
}

// recordPrunedJobs writes a receipt for each tenant of which the round pruned letters of jobs. If the
// process dies before, the receipts of the letters alone say it.
func (p *pruneRound) recordPrunedJobs(ctx context.Context) error {
	var errs []error
	for _, tenant := range slices.Sorted(maps.Keys(p.prunedJobs)) {
		errs = append(errs, p.journal.Operations.RecordPruned(ctx, tenant, receipts.Draft{
			Actor: systemActor, At: p.now(), Payload: receipts.Payload{Family: casework.JobFamily, Letters: p.prunedJobs[tenant]},
		}))
	}
	return errors.Join(errs...)
}

// announce announces the expiry of letters, once for each.
func (p *pruneRound) announce(ctx context.Context, rule parsedRule, letters []journal.LetterRow, tried func(int, error) bool) ([]casework.Result, error) {
	at := p.now()
	var due []journal.LetterRow
	for _, f := range letters {
		if casework.PurgeGate(f) == "" && f.Annotations.RetentionEndsAt.IsZero() {
			due = append(due, f)
		}
	}
	ends := func(f journal.LetterRow) time.Time { return rule.announcedEnd(f.Run.DeadAt, at) }
	results, err := p.applier.ApplyMany(ctx, due, casework.Announcing(ends, systemActor, at), casework.Batch{Tried: tried})
	n := countWritten(results)
	p.report.Announced += n
	p.counts.announced.Add(uint64(n))
	return results, err
}

// countWritten counts the letters whose changes were written.
func countWritten(results []casework.Result) (n int) {
	for _, r := range results {
		if r.Err == nil {
			n++
		}
	}
	return n
}

// Expiring counts the letters of each family, over all tenants, that expire within a
// duration or are overdue.
func (k *Keeper) Expiring(ctx context.Context, within time.Duration) (map[string]int64, error) {
	out, at := map[string]int64{}, k.now()
	for _, rule := range k.rules.all() {
		n, err := k.journal.Letters.CountExpired(ctx, rule.RetentionScope, rule.expiredBefore(at.Add(within)))
		if err != nil {
			return nil, err
		}
		out[rule.Family] += n
	}
	return out, nil
}

// Limits of failures in a round. ApplyMany tries the parts of a tenant's letters largest first, so
// that few untried letters would have succeeded.
const (
	// tenantFailureLimit is after how many failures in a row the rest of a tenant's letters in a
	// page is skipped.
	tenantFailureLimit = 24
	// skipTenantAfterPages is after how many skipped pages in a row the tenant is skipped for the
	// rest of the list.
	skipTenantAfterPages = 2
	// degradedAfterFailures is after how many failures in a row, over all tenants, probably nothing
	// works. A tenant then has only degradedFailureLimit tries in a page: all its letters there,
	// their halves and quarters. Every tenant is still tried, and the first success restores the
	// full limit.
	degradedAfterFailures = 8 * tenantFailureLimit
	degradedFailureLimit  = 7
)

// maxReportedErrors bounds the errors of letters that a round returns; all are logged.
const maxReportedErrors = 10

// pruneRound is one round of the pruner.
type pruneRound struct {
	*Keeper
	report     Report
	prunedJobs map[string]int // by tenant
	errs       []error        // of letters and tenants, the first few
	incomplete bool           // letters of a tenant were skipped untried
}

// pruneScan iterates over the pages of one list.
type pruneScan struct {
	*pruneRound
	apply         pageFunc
	skippedPages  map[string]int // skipped pages in a row, by tenant
	failuresInRow int            // over all tenants
}

// pageFunc applies a decision to letters by ApplyMany, with tried.
type pageFunc func(letters []journal.LetterRow, tried func(int, error) bool) ([]casework.Result, error)

// applyPage calls apply with letters, by tenant. A failing letter does not block others: it is
// logged and counted, and the next round retries it. applyPage returns only the error of ctx, or
// ErrJournalUnavailable.
func (w *pruneScan) applyPage(ctx context.Context, letters []journal.LetterRow) error {
	for parts := w.byTenant(letters); len(parts) > 0; parts = parts[1:] {
		results, err := w.apply(parts[0], w.limitFailures(parts[0][0].Run.Tenant))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, r := range results {
			switch {
			case r.Err == nil, errors.Is(r.Err, casework.ErrLetterChanged), r.Decided && isGateRefusal(r.Err): // the next round reads it again
			case errors.Is(r.Err, casework.ErrNotTried):
				w.countFailed(1)
			default:
				w.skipLetter(r.Letter, r.Err)
			}
		}
		if err != nil {
			for _, untried := range parts[1:] {
				w.countFailed(len(untried))
			}
			return err
		}
	}
	return nil
}

func isGateRefusal(err error) bool {
	var refused *refusal.RefusedError
	return errors.As(err, &refused)
}

// limitFailures counts the failures in a row of a tenant's letters in a page, and ends the work
// on them at failureLimit.
func (w *pruneScan) limitFailures(tenant string) (tried func(int, error) bool) {
	failures := 0
	return func(_ int, err error) bool {
		if err == nil {
			w.failuresInRow, failures, w.skippedPages[tenant] = 0, 0, 0
			return true
		}
		w.failuresInRow++
		if failures++; failures < w.failureLimit() {
			return true
		}
		w.incomplete = true
		w.skippedPages[tenant]++
		w.addError(fmt.Errorf("%d tries in a row of tenant %s: %w", failures, tenant, err))
		return false
	}
}

// failureLimit returns after how many failures in a row the rest of a tenant's letters in a page
// is skipped.
func (w *pruneScan) failureLimit() int {
	if w.failuresInRow >= degradedAfterFailures {
		return degradedFailureLimit
	}
	return tenantFailureLimit
}

// byTenant returns the letters of a page by tenant, without those of skipped tenants.
func (w *pruneScan) byTenant(letters []journal.LetterRow) (parts [][]journal.LetterRow) {
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

// skipLetter counts and reports a failed letter, which the next round retries.
func (p *pruneRound) skipLetter(f journal.LetterRow, err error) {
	p.countFailed(1)
	p.log.Error("a letter can't be announced or pruned, others can; the next round retries it",
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
	p.counts.failed.Add(uint64(letters))
}

// eachPage calls do with the letters of each page of a list. The next page begins after the last
// letter, whether do succeeded or not. It stops only at the end, if the list can't be read,
// if the journal is unavailable, or if ctx ends.
func (p *pruneRound) eachPage(ctx context.Context, list func(after journal.LetterRowCursor) ([]journal.LetterRow, journal.LetterRowCursor, error), do pageFunc) error {
	var after journal.LetterRowCursor
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

// finish returns the report of the round. The round counts as completed if every list was read
// and tried to its end, whatever became of single letters.
func (p *pruneRound) finish(err error) (Report, error) {
	if err == nil && !p.incomplete {
		p.counts.rounds.Add(1)
		if was := p.counts.unarchived.Swap(p.report.Unarchived); was == 0 && p.report.Unarchived > 0 {
			p.log.Warn("expired letters of settlements are kept: there is no archive", zap.Int64("letters", p.report.Unarchived))
		}
	}
	return p.report, errors.Join(append(p.errs, err)...)
}
