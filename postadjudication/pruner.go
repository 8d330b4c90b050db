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

// pruneActor is whom the receipts of retention name.
const pruneActor = "system:retention"

// pruneBatch is how many letters share an archive file and a commit.
const pruneBatch = 500

// Why retention takes a letter, as its receipt says.
const (
	expiredByAge   = "max_age"
	expiredByCount = "max_count"
)

// PruneReport is what one round of the pruner did, over all tenants.
type PruneReport struct {
	Alone      bool  // false: another process prunes, and this one did nothing
	Warned     int   // letters whose end was announced
	Pruned     int   // letters taken
	Unarchived int64 // letters of settlements whose retention is over, and which stay because there is no archive
}

// pruneStats are of one process.
type pruneStats struct {
	rounds, warned, pruned atomic.Uint64
	unarchived             atomic.Int64
}

// RetentionStats are counts of one process; Unarchived is as the last round found it.
type RetentionStats struct {
	Rounds     uint64 // of the pruner that were carried through
	Warned     uint64 // letters whose end was announced
	Pruned     uint64 // letters whose retention was over
	Unarchived int64  // letters of settlements that stay beyond their retention because there is no archive
}

func (p *pruneStats) read() RetentionStats {
	return RetentionStats{Rounds: p.rounds.Load(), Warned: p.warned.Load(), Pruned: p.pruned.Load(), Unarchived: p.unarchived.Load()}
}

// keep sets up how letters of the families are kept.
func (s *Service) keep(c Config, families []background.Family) (err error) {
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

// keepPruning prunes now and then, until ctx ends.
func (s *Service) keepPruning(ctx context.Context) {
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
// that was not announced. Only one process prunes at a time; PruneReport.Alone says whether it was this.
func (s *Service) Prune(ctx context.Context) (r PruneReport, err error) {
	r.Alone, err = s.journal.WhilePruning(ctx, func() error {
		var errs []error
		for _, rule := range s.retention.all() {
			errs = append(errs, s.pruneBy(ctx, rule, &r))
		}
		return errors.Join(errs...)
	})
	if !r.Alone || err != nil {
		return r, err
	}
	s.pruned.rounds.Add(1)
	if was := s.pruned.unarchived.Swap(r.Unarchived); was == 0 && r.Unarchived > 0 {
		s.log.Warn("letters of settlements are over their retention and stay: there is no archive to put them into", zap.Int64("letters", r.Unarchived))
	}
	return r, nil
}

// pruneBy applies one rule.
func (s *Service) pruneBy(ctx context.Context, rule retention, r *PruneReport) error {
	at := s.now()
	warn := func(f []postgres.Filed) error { return s.warn(ctx, rule, f, s.now(), r) }
	err := each(func(after postgres.FiledPlace) ([]postgres.Filed, postgres.FiledPlace, error) {
		return s.journal.Unwarned(ctx, rule.Shelf, rule.nearing(at), after, pruneBatch)
	}, warn)
	if err != nil {
		return fmt.Errorf("announce the end of letters of %s: %w", rule.Family, err)
	}
	if rule.money() && s.archive == nil {
		n, err := s.journal.CountExpired(ctx, rule.Shelf, rule.over(at))
		r.Unarchived += n
		return err
	}
	err = each(func(after postgres.FiledPlace) ([]postgres.Filed, postgres.FiledPlace, error) {
		return s.journal.Expired(ctx, rule.Shelf, rule.over(at), after, pruneBatch)
	}, func(f []postgres.Filed) error { return s.expire(ctx, rule, expiredByAge, f, s.now(), r) })
	if err == nil && rule.maxCount > 0 {
		err = each(func(after postgres.FiledPlace) ([]postgres.Filed, postgres.FiledPlace, error) {
			return s.journal.Overfull(ctx, rule.Shelf, rule.maxCount, after, pruneBatch)
		}, func(f []postgres.Filed) error { return s.expire(ctx, rule, expiredByCount, f, s.now(), r) })
	}
	if err != nil {
		return fmt.Errorf("prune letters of %s: %w", rule.Family, err)
	}
	return nil
}

// each walks a list page by page. The next page begins behind the last letter, also
// if that could not be taken: it will be met in the next round.
func each(list func(after postgres.FiledPlace) ([]postgres.Filed, postgres.FiledPlace, error), do func([]postgres.Filed) error) error {
	var after postgres.FiledPlace
	for {
		page, last, err := list(after)
		if err != nil || last == after {
			return err
		}
		if err := do(page); err != nil {
			return err
		}
		after = last
	}
}

// expire takes letters whose retention is over.
func (s *Service) expire(ctx context.Context, rule retention, why string, letters []postgres.Filed, at time.Time, r *PruneReport) error {
	var due []postgres.Filed
	for _, f := range letters {
		if keeps(f) == "" && (why == expiredByCount || f.Desk.Warned && !rule.expiresAt(f.Run.DeadAt).After(at)) {
			due = append(due, f)
		}
	}
	done, err := s.retire(ctx, due, at, func(f postgres.Filed, archive string) receipts.Draft {
		return receipts.Draft{Run: f.Run.ID, Subtype: receipts.RetentionExpired, Actor: pruneActor, At: at, Payload: receipts.Payload{
			ReasonCode: why, Reason: "its retention is over", Archive: archive, ExpiresAt: rule.expiresAt(f.Run.DeadAt), DeadLetteredAt: f.Run.DeadAt}}
	})
	r.Pruned += len(done)
	s.pruned.pruned.Add(uint64(len(done)))
	return err
}

// warn announces the end of letters, once for each.
func (s *Service) warn(ctx context.Context, rule retention, letters []postgres.Filed, at time.Time, r *PruneReport) error {
	var changes []postgres.Change
	for _, f := range letters {
		if keeps(f) != "" || f.Desk.Warned {
			continue
		}
		desk := f.Desk
		desk.Warned = true
		ch := deskChange(f, newID(), desk)
		ch.Drafts = []receipts.Draft{{Run: f.Run.ID, Subtype: receipts.RetentionEnding, Actor: pruneActor, At: at, Payload: receipts.Payload{
			ExpiresAt: rule.expiresAt(f.Run.DeadAt), DeadLetteredAt: f.Run.DeadAt}}}
		changes = append(changes, ch)
	}
	if len(changes) == 0 {
		return nil
	}
	done, err := s.journal.MoveFiled(ctx, changes)
	for _, ok := range done {
		if ok {
			r.Warned++
			s.pruned.warned.Add(1)
		}
	}
	return err
}

// Expiring counts the letters of each family, over all tenants, that retention will
// take within a time, or would have taken already if it could.
func (s *Service) Expiring(ctx context.Context, within time.Duration) (map[string]int64, error) {
	out, at := map[string]int64{}, s.now()
	for _, rule := range s.retention.all() {
		n, err := s.journal.CountExpired(ctx, rule.Shelf, rule.over(at.Add(within)))
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
	return s.retention.of(family, queue).expiresAt(died)
}
