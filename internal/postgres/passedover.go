package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// passedOver are the runs that this process met of late and can't read, as those of a
// newer version. Each is told of once.
type passedOver struct {
	mu     sync.Mutex
	met    map[background.RunID]time.Time // when last
	looked time.Time                      // when those of long ago were forgotten
}

// passedOverFor is for how long a run that was met counts: longer than it takes until it
// is tried again.
const passedOverFor = 10 * time.Minute

// mostPassedOver bounds how many are remembered.
const mostPassedOver = 100_000

// note reports whether the run was not met of late.
func (p *passedOver) note(id background.RunID, now time.Time) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.looked) > time.Minute {
		p.forget(now)
	}
	_, known := p.met[id]
	switch {
	case !known && len(p.met) >= mostPassedOver:
		return false
	case p.met == nil:
		p.met = map[background.RunID]time.Time{}
	}
	p.met[id] = now
	return !known
}

func (p *passedOver) count(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(now)
	return len(p.met)
}

func (p *passedOver) forget(now time.Time) {
	p.looked = now
	for id, at := range p.met {
		if now.Sub(at) > passedOverFor {
			delete(p.met, id)
		}
	}
}

// passOver tells of runs that can't be read, of each once.
func (j *Journal) passOver(bad unreadable) {
	now := time.Now()
	for _, u := range bad {
		if j.passed.note(u.id, now) {
			j.Warn(unreadable{u})
		}
	}
}

// Unreadable is how many runs this process met within ten minutes that it can't read.
func (j *Journal) Unreadable() int { return j.passed.count(time.Now()) }

// runs are those of the snapshots, and the places of the runs that can't be read.
func (j *Journal) runs(ss []Snapshot, err error) ([]background.Run, unreadable, error) {
	var bad unreadable
	if errors.As(err, &bad) {
		j.passOver(bad)
	} else if err != nil {
		return nil, nil, unavailable(err)
	}
	out := make([]background.Run, len(ss))
	for i, s := range ss {
		out[i] = s.Run
	}
	return out, bad, nil
}

// readable reads on, page by page, until it has so many runs that can be read, or there
// are no more: those that can't be read must not stand before the others for ever.
func (j *Journal) readable(after background.Cursor, limit int, order func(a, b background.Cursor) int, page func(after background.Cursor) ([]Snapshot, error)) ([]background.Run, error) {
	var out []background.Run
	for {
		ss, err := page(after)
		some, bad, err := j.runs(ss, err)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
		if len(bad) == 0 || len(some)+len(bad) < limit || len(out) >= limit {
			return out[:min(len(out), limit)], nil
		}
		places := make([]background.Cursor, 0, limit)
		for _, r := range some {
			places = append(places, background.Cursor{DueAt: r.DueAt, ID: r.ID})
		}
		for _, u := range bad {
			places = append(places, u.place)
		}
		last := slices.MaxFunc(places, order)
		if order(last, after) <= 0 {
			return out, nil // not even where it stands can be read
		}
		after = last
	}
}

func byID(a, b background.Cursor) int { return bytes.Compare(a.ID[:], b.ID[:]) }

// CountUnreadable counts the live runs and open letters of all tenants that this program
// can't read.
func (j *Journal) CountUnreadable(ctx context.Context) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var policies []struct {
		Policy string `db:"policy"`
		Runs   int64  `db:"runs"`
	}
	if err := j.reads.SelectContext(ctx, &policies, `SELECT policy, count(*) AS runs FROM recourse.runs WHERE holds GROUP BY policy`); err != nil {
		return 0, unavailable(err)
	}
	for _, p := range policies {
		if _, err := retrypolicy.Parse(p.Policy); err != nil {
			n += p.Runs
		}
	}
	return n, nil
}
