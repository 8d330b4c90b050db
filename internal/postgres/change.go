package postgres

import (
	"context"

	"github.com/recourse-dev/recourse/background"
)

// Decide gives the change that a move makes of a case as it is, or the reason why
// it makes none. It is called again whenever the case has moved on meanwhile, so
// it must be pure. What it is given is others' as well: it must not change it, nor
// keep it but as the Before of its change.
type Decide func(*Snapshot) (Change, error)

// Apply makes one move of a run: it decides on what was last seen of the case,
// writes the change with its receipts in one commit, and decides again on the
// newest state when the case has moved on. A move that is already written is
// answered with the run as it is. It returns what Decide refused with, together
// with the run as it is now.
//
// When it returns any other error the outcome is not known: the same move may be
// applied again.
func (j *Journal) Apply(ctx context.Context, id background.RunID, move background.MoveID, decide Decide) (*Snapshot, error) {
	seen, hinted := j.recent.Get(id)
	for {
		if !hinted {
			found, err := j.finds.do(id)
			if seen = &found; err != nil {
				return seen, err
			}
			if seen.Run.LastMove == move {
				return seen, nil
			}
		}
		change, err := decide(seen)
		if err != nil {
			if hinted {
				hinted = false
				continue
			}
			return seen, err
		}
		v, err := j.first(ctx, &change)
		if v == lost && err == nil && !hinted {
			if err = j.whyLost(ctx, &change); err == nil {
				v, err = j.attemptAlone(ctx, &change)
			}
			if v == lost && err == nil {
				err = j.whyLost(ctx, &change)
			}
		}
		j.remember(id, change.After, v == written)
		switch {
		case err != nil:
			return seen, err
		case v == written:
			return change.After, nil
		case v == overHeld:
			return seen, ErrExceedsHeld
		case ctx.Err() != nil:
			return seen, ctx.Err()
		}
		hinted = false
	}
}

// first writes a change without waiting for any transaction, in company if it may be.
func (j *Journal) first(ctx context.Context, ch *Change) (verdict, error) {
	return j.attempt(ctx, ch, func(s *sealed) (verdict, error) { return j.try(ctx, s) })
}

func (j *Journal) try(ctx context.Context, s *sealed) (verdict, error) {
	switch {
	case s.Beside == nil:
		return j.moves.do(s)
	case s.company():
		return j.deaths.do(s)
	case !j.moveLane.enter(ctx):
		return lost, ErrBusy
	}
	defer j.moveLane.leave()
	return aloneAs(j.together(ctx, j.moveLane, skipping(moveSQL), s))
}

// aloneAs is what became of a change that was written alone.
func aloneAs(v verdict, err error) (verdict, error) {
	switch {
	case ofContention(err):
		return lost, ErrBusy
	case err != nil:
		return lost, refusedOr(err)
	}
	return v, nil
}

// attempt seals a change, which puts the new head into it, and hands it over.
func (j *Journal) attempt(ctx context.Context, ch *Change, do func(*sealed) (verdict, error)) (verdict, error) {
	declare(ctx, ch.Drafts)
	s, err := seal(ch)
	if err != nil {
		return lost, unrecordable(err)
	}
	return do(s)
}

// attemptAlone writes a change that lost its guard though it was decided on what
// had just been read: another transaction may hold the row, so this one waits, as
// one of its case at a time.
func (j *Journal) attemptAlone(ctx context.Context, ch *Change) (verdict, error) {
	return j.attempt(ctx, ch, func(s *sealed) (verdict, error) { return j.writeBehind(ctx, j.waitLane, s.After.Case.ID.String(), s) })
}

// writeBehind writes a change behind the transaction that holds its rows.
func (j *Journal) writeBehind(ctx context.Context, l *lane, name string, s *sealed) (verdict, error) {
	return l.behind(ctx, name, func() (verdict, error) { return j.try(ctx, s) }, func() (verdict, error) {
		return aloneAs(j.together(ctx, l, waiting(moveSQL), s))
	})
}

// remember keeps what a case looks like after our own move, as a hint for the
// next one, and forgets it when the hint has proved wrong or the run has ended.
func (j *Journal) remember(id background.RunID, after *Snapshot, ok bool) {
	if ok && after.Run.State.Live() {
		j.recent.Add(id, after)
		return
	}
	j.recent.Remove(id)
}

// whyLost names the guard that a claim may lose though its case stands still.
func (j *Journal) whyLost(ctx context.Context, ch *Change) error {
	if !ch.claims() {
		return nil
	}
	known, err := j.sessionKnown(ctx, ch.After.Run.Session)
	switch {
	case err != nil:
		return unavailable(err)
	case !known:
		return background.ErrSessionLost
	}
	barred, err := j.braked(ctx, ch.After.Run.ID)
	switch {
	case err != nil:
		return unavailable(err)
	case barred:
		return background.ErrBraked
	}
	return nil
}
