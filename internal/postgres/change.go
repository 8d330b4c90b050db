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
		if v == lost && err == nil && !hinted && change.company() {
			v, err = j.attemptAlone(ctx, &change)
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

// first writes a change in company, if it may be.
func (j *Journal) first(ctx context.Context, ch *Change) (verdict, error) {
	switch {
	case ch.Beside == nil:
		return j.attempt(ch, j.moves.do)
	case ch.company():
		return j.attempt(ch, j.deaths.do)
	}
	return j.attemptAlone(ctx, ch)
}

// attempt seals a change, which puts the new head into it, and hands it over.
func (j *Journal) attempt(ch *Change, do func(*sealed) (verdict, error)) (verdict, error) {
	s, err := seal(ch)
	if err != nil {
		return lost, err
	}
	return do(s)
}

// attemptAlone writes a change that lost its guard though it was decided on what
// had just been read: another transaction may hold the row, so this one waits.
func (j *Journal) attemptAlone(ctx context.Context, ch *Change) (verdict, error) {
	return j.attempt(ch, func(s *sealed) (verdict, error) {
		if !j.moveLane.enter(ctx) {
			return lost, ErrBusy
		}
		defer j.moveLane.leave()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementLimit)
		defer cancel()
		defer j.announce()
		v, err := j.writeAlone(ctx, s)
		switch {
		case ofContention(err):
			return lost, ErrBusy
		case err != nil:
			return lost, unavailable(err)
		}
		return v, nil
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
