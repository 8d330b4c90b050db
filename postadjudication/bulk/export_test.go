package bulk

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// What black-box tests need of this package that its users do not.

const MaxRunning = maxRunning

var ForkID = forkID

// Stored returns the plans of the journal.
func (p Plans) Stored() *plans.Store { return p.s.stored }

// Index returns the index of dead letters.
func (p Plans) Index() *search.Index { return p.s.index.Search }

// Now returns the time of the database, as the service estimates it.
func (p Plans) Now() time.Time { return p.s.now() }

// LimitArchive limits the time of a file, and the time for which the archive may take none.
func (p Plans) LimitArchive(limit time.Duration) {
	p.s.applier.Archive, p.s.archiveLimit = limitedArchiver{p.s.applier.Archive, limit}, limit
}

// LimitTries limits how often an item is tried.
func (p Plans) LimitTries(tries int) { p.s.tries = tries }

// limitedArchiver is an archiver with a limit of the time of a file.
type limitedArchiver struct {
	casework.Archiver
	limit time.Duration
}

func (a limitedArchiver) Put(ctx context.Context, letters []journal.LetterRow, at time.Time) (name, digest string, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.limit)
	defer cancel()
	return a.Archiver.Put(ctx, letters, at)
}

// PlanWithin is a Plan with another bound of the letters and the time of its condition.
func (p Plans) PlanWithin(ctx context.Context, q Request, letters int64, limit time.Duration) (Plan, error) {
	q.tenant, q.actor = p.tenant, p.actor
	return p.s.create(ctx, q, scanLimit{letters, limit})
}

// PlanAgain repeats an existing plan of forks, from what is listed now, within a limit of letters.
// scope says how large the batches are and what of it the plan selects. judged is called for each
// letter.
func (p Plans) PlanAgain(ctx context.Context, like Plan, f deadletter.Filter, scope plans.Scope, judged func()) (Plan, error) {
	b, err := p.s.stored.Find(ctx, p.tenant, like.ID)
	if err != nil {
		return Plan{}, err
	}
	b.ID = casework.NewID()
	digest := newDigest(b)
	scope.Filter, scope.Hash = p.s.index.JournalFilter(f, like.PlannedAt), digest.Sum
	scope.GateOf = func(l *plans.Letter) string {
		digest.Add(l.Run.ID, l.Case.Head, l.Amount, l.Case.Currency)
		judged()
		return string(p.s.predictGate(Request{Action: Fork}, l, like.PlannedAt))
	}
	if b, err = p.s.stored.Create(ctx, b, scope); err != nil {
		return Plan{}, err
	}
	return p.s.withCounts(ctx, b)
}

// PlanOfAction stores a plan of another action for the items of a plan, as a newer version may.
func (p Plans) PlanOfAction(ctx context.Context, like Plan, action Action) (Plan, error) {
	items, err := p.s.stored.Items(ctx, like.ID, "", 0, int(like.Items))
	if err != nil {
		return Plan{}, err
	}
	return p.s.storePlan(ctx, plans.Plan{Tenant: p.tenant, Action: string(action), Actor: p.actor, Reason: like.Reason}, like.Spec, items)
}

// Scope returns what a plan of all letters selects of a tenant's list.
func (p Plans) Scope(at time.Time) search.Filter {
	return p.s.index.JournalFilter(deadletter.Filter{}, at)
}

// Work works on a running plan until it is done, beside the processes that do.
func (p Plans) Work(ctx context.Context, id uuid.UUID) error {
	b, err := p.s.stored.Find(ctx, p.tenant, id)
	if err != nil {
		return err
	}
	return p.s.work(ctx, b)
}

// WhyNotStart returns why the caller may not start a plan, and does not start it.
func (p Plans) WhyNotStart(ctx context.Context, id uuid.UUID) (because string, err error) {
	by, err := p.s.newStarter(ctx, p.tenant, p.actor, nil)
	if err != nil {
		return "", err
	}
	b, err := p.s.find(ctx, p.tenant, id)
	if err != nil {
		return "", err
	}
	return by.authorize(&b)
}
