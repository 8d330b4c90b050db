package casework

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// JobFamily is the family of jobs. Their dead letters are kept by the rules of Open Job Spec.
const JobFamily = "ojs"

// DefaultLease is the length of a lease that neither the worker nor the run states.
const DefaultLease = 30 * time.Second

// MaxLease bounds the length of a lease and the time limit of its attempt.
const MaxLease = 24 * time.Hour

// RemoteRuns claims remote runs for workers, by the decisions of their families. It implements
// background.LeaseStore.
type RemoteRuns struct {
	*journal.LeaseStore
	Families    map[string]*PlainFamily // by name
	Settlements *SettlementFamily
	Log         *zap.Logger
}

var _ background.LeaseStore = RemoteRuns{}

// ClaimDue claims due runs for a worker. A repeated fetch is given the runs that it was given before, but
// no adjudication whose row was changed since, and none that may have been paid by a worker whose payment
// service recognises no operation key, or may have forgotten it by now: a lease that another process watches
// may outlive its limit.
func (r RemoteRuns) ClaimDue(ctx context.Context, at time.Time, want lease.Want, start func(background.Run) background.Transition) ([]background.Claimed, error) {
	begun := map[background.RunID]bool{}
	claimed, err := r.LeaseStore.ClaimDue(ctx, &journal.Claim{Want: want, At: at, Decide: r.changeOf, Start: func(run background.Run) background.Transition {
		begun[run.ID] = true
		return start(run)
	}})
	return slices.DeleteFunc(claimed, func(c background.Claimed) bool {
		switch {
		case c.Run.Family != Family || c.Err != nil:
			return false
		case !begun[c.Run.ID] && r.Settlements.keyMayExpire(&c.Run, at):
			return true
		}
		altered := checkBinding(&c.Run)
		if altered != nil {
			r.Log.Error("a leased adjudication differs from its receipts, and is given to no worker", zap.Stringer("run", c.Run.ID), zap.Error(altered))
		}
		return altered != nil
	}), err
}

func (r RemoteRuns) changeOf(tr background.Transition, s *journal.Snapshot) (journal.Change, error) {
	if err := redactTransition(context.Background(), r.Settlements.References, &tr); err != nil {
		return journal.Change{}, err
	}
	if s.Run.Family == Family {
		return r.settlementChange(&tr, s)
	}
	f := r.Families[s.Run.Family]
	if f == nil || f.LeaseTerms == nil {
		return journal.Change{}, background.ErrUnknownFamily
	}
	length, limit := f.LeaseTerms(s.Run.Payload)
	tr.Lease.Length = min(cmp.Or(tr.Lease.Length, length, DefaultLease), MaxLease)
	tr.Lease.Limit = min(limit, MaxLease)
	return f.changeOf(&tr, s)
}

// settlementChange returns the change that claims an adjudication for a worker.
func (r RemoteRuns) settlementChange(tr *background.Transition, s *journal.Snapshot) (journal.Change, error) {
	f := r.Settlements
	limit, tooLate := r.leaseLimit(&s.Run, tr.At)
	tr.Lease.Limit, tr.KeyForgotten = limit, tooLate == nil && r.forgottenByWorkers(&s.Run, tr.At)
	tr.Lease.Length = min(cmp.Or(tr.Lease.Length, DefaultLease), MaxLease)
	ch, err := f.changeOf(tr, s, nil)
	if errors.Is(err, errCaseRunsStale) {
		var runs *caseRuns
		if runs, err = f.readCaseRuns(context.Background(), s.Run); err == nil {
			ch, err = f.changeOf(tr, s, runs)
		}
	}
	if err == nil && ch.After.Run.State == background.Running && tooLate != nil {
		return journal.Change{}, tooLate
	}
	if err == nil && ch.After.Run.State != background.Running {
		err = unclaimable(ch.After.Run.Reason) // see onPaidUnderOlderKey
	}
	return ch, err
}
