package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// unreadableTracker has the runs that this process recently failed to read, such as those
// of a newer version, so that each is reported once.
type unreadableTracker struct {
	mu       sync.Mutex
	lastSeen map[background.RunID]time.Time // time of the last attempt to read it
	prunedAt time.Time                      // time of the last prune
}

// unreadableFor is how long a run counts after it was seen: longer than the time until it
// is tried again.
const unreadableFor = 10 * time.Minute

// maxUnreadable bounds the number of tracked runs.
const maxUnreadable = 100_000

// observe records a run, and reports whether it was not tracked yet.
func (p *unreadableTracker) observe(id background.RunID, now time.Time) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.prunedAt) > time.Minute {
		p.prune(now)
	}
	_, seen := p.lastSeen[id]
	switch {
	case !seen && len(p.lastSeen) >= maxUnreadable:
		return false
	case p.lastSeen == nil:
		p.lastSeen = map[background.RunID]time.Time{}
	}
	p.lastSeen[id] = now
	return !seen
}

func (p *unreadableTracker) count(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prune(now)
	return len(p.lastSeen)
}

func (p *unreadableTracker) prune(now time.Time) {
	p.prunedAt = now
	for id, at := range p.lastSeen {
		if now.Sub(at) > unreadableFor {
			delete(p.lastSeen, id)
		}
	}
}

// warnUnreadable passes each unreadable run to Warn, once.
func (s *shared) warnUnreadable(unreadables unreadable) {
	now := time.Now()
	for _, u := range unreadables {
		if s.unreadableRuns.observe(u.id, now) {
			s.Warn(unreadable{u})
		}
	}
}

// errBlocked is the error of runs of a case with a receipt beyond its head, which no process writes: the next receipt
// of the case can't be recorded.
var errBlocked = errors.New("its case has a receipt beyond its head, written by hand, so that no receipt can be recorded: run recourse receipts verify, then the owner of the schema removes that receipt")

// warnIfBlocked passes a run to Warn, once, if err means that a receipt of its case is in the place of the next one.
func (s *shared) warnIfBlocked(id background.RunID, err error) {
	if pg.ViolatedConstraint(err) == "receipts_pkey" && s.unreadableRuns.observe(id, time.Now()) {
		s.Warn(fmt.Errorf("journal: run %s: %w", id, errBlocked))
	}
}

// UnreadableSeen returns the number of runs that this process failed to read, or whose next receipt it could not
// record because of one beyond the head of their case, within the last ten minutes.
func (s *shared) UnreadableSeen() int { return s.unreadableRuns.count(time.Now()) }

// readableRuns returns the runs of the snapshots, and those that can't be read.
func (s *shared) readableRuns(ss []Snapshot, err error) ([]background.Run, unreadable, error) {
	var unreadables unreadable
	if errors.As(err, &unreadables) {
		s.warnUnreadable(unreadables)
	} else if err != nil {
		return nil, nil, pg.Wrap(err)
	}
	out := make([]background.Run, len(ss))
	for i, snapshot := range ss {
		out[i] = snapshot.Run
	}
	return out, unreadables, nil
}

// collectReadable reads page after page until it has limit readable runs or there are no
// more: unreadable runs at the front must not hide the others for ever.
func (s *shared) collectReadable(after background.Cursor, limit int, order func(a, b background.Cursor) int, page func(after background.Cursor) ([]Snapshot, error)) ([]background.Run, error) {
	var out []background.Run
	for {
		ss, err := page(after)
		readable, unreadables, err := s.readableRuns(ss, err)
		if err != nil {
			return nil, err
		}
		out = append(out, readable...)
		if len(unreadables) == 0 || len(readable)+len(unreadables) < limit || len(out) >= limit {
			return out[:min(len(out), limit)], nil
		}
		cursors := make([]background.Cursor, 0, limit)
		for _, r := range readable {
			cursors = append(cursors, background.Cursor{DueAt: r.DueAt, ID: r.ID})
		}
		for _, u := range unreadables {
			cursors = append(cursors, u.cursor)
		}
		last := slices.MaxFunc(cursors, order)
		if order(last, after) <= 0 {
			return out, nil // not even its cursor could be read
		}
		after = last
	}
}

func compareByID(a, b background.Cursor) int { return bytes.Compare(a.ID[:], b.ID[:]) }

// CountUnreadable counts the live runs and open dead letters of all tenants that this
// program can't read.
func (c *Cases) CountUnreadable(ctx context.Context) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var policies []struct {
		Policy string `db:"policy"`
		Runs   int64  `db:"runs"`
	}
	if err := c.readDB.SelectContext(ctx, &policies, `SELECT policy, count(*) AS runs FROM recourse.runs WHERE active GROUP BY policy`); err != nil {
		return 0, pg.Wrap(err)
	}
	for _, p := range policies {
		if _, err := retrypolicy.Parse(p.Policy); err != nil {
			n += p.Runs
		}
	}
	return n, nil
}

// CountBlocked counts the live runs and open dead letters of all tenants whose case has a receipt beyond its head.
func (c *Cases) CountBlocked(ctx context.Context) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	err = c.readDB.GetContext(ctx, &n, `SELECT count(*) FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id WHERE r.active AND `+blockedSQL)
	return n, pg.Wrap(err)
}

// IsBlocked reports whether a case has a receipt beyond its head.
func (c *Cases) IsBlocked(ctx context.Context, id receipts.CaseID) (blocked bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	err = c.readDB.GetContext(ctx, &blocked, `SELECT EXISTS (SELECT FROM recourse.cases c WHERE c.id = $1 AND `+blockedSQL+`)`, id.String())
	return blocked, pg.Wrap(err)
}

// blockedSQL selects the cases c with a receipt beyond their head.
const blockedSQL = `EXISTS (SELECT FROM recourse.receipts x WHERE x.case_id = c.id AND x.seq > c.last_seq)`

// unreadable is the error of runs that this program can't read, such as one with a policy
// that only a newer program knows. Other runs can still be read.
type unreadable []unreadableRun

type unreadableRun struct {
	id      background.RunID
	err     error
	cursor  background.Cursor
	partial Snapshot // what could be read of it
}

func (u unreadable) Error() string {
	return fmt.Sprintf("journal: run %s can't be read by this program (%d in all): %v", u[0].id, len(u), u[0].err)
}

// Is matches background.ErrUnreadable: all other runs are readable.
func (u unreadable) Is(target error) bool { return target == background.ErrUnreadable }

// leftOut are the runs that could not be claimed although they are due, such as those of a newer
// version. They are tried again after leftOutFor, so that they do not keep a queue from moving.
type leftOut struct {
	mu    sync.Mutex
	since map[background.RunID]time.Time
}

const (
	leftOutFor = time.Minute
	maxLeftOut = 1000 // a run beyond them is picked again and again, and skipped each time
)

func (o *leftOut) add(id background.RunID, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == nil {
		o.since = map[background.RunID]time.Time{}
	}
	if len(o.since) < maxLeftOut {
		o.since[id] = now
	}
}

func (o *leftOut) now(now time.Time) (ids []background.RunID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, since := range o.since {
		if now.Sub(since) > leftOutFor {
			delete(o.since, id)
			continue
		}
		ids = append(ids, id)
	}
	return ids
}
