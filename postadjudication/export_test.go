package postadjudication

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/receipts"
)

// What black-box tests need of this package that its users do not.

const (
	MaxRunningBulks         = maxRunningBulks
	PositionsPerReceipt     = positionsPerReceipt
	ReasonCaseEnded         = casework.ReasonCaseEnded
	ReasonPaidUnderOlderKey = casework.ReasonPaidUnderOlderKey
	RequestTimeout          = requestTimeout
	TenantFailureLimit      = tenantFailureLimit
)

var (
	ErrJournalUnavailable = casework.ErrJournalUnavailable
	ErrLetterChanged      = casework.ErrLetterChanged
	ForkID                = forkID
)

func (s *Service) Journal() *journal.Journal    { return s.journal }
func (s *Service) Index() *search.Index         { return s.index }
func (s *Service) Plans() *plans.Store          { return s.plans.stored }
func (s *Service) Manager() *background.Manager { return s.manager }
func (s *Service) Family() background.Family    { return s.settlements }
func (s *Service) Logger() *zap.Logger          { return s.log }

// Now returns the time of the database, as the service estimates it.
func (s *Service) Now() time.Time { return s.now() }

// AsWritten returns the run as the submission wrote it.
func (s Submitted) AsWritten() background.Run { return s.run }

// Claim records that a worker that was lost since had begun an attempt.
func (s *Service) Claim(ctx context.Context, run background.Run) (background.Run, error) {
	session := casework.NewID()
	if err := s.journal.Sessions.Register(ctx, background.Session{ID: session, Worker: "lost"}); err != nil {
		return run, err
	}
	return s.settlements.Record(ctx, background.Transition{
		ID: casework.NewID(), Run: run, Event: receipts.AttemptStarted, At: s.now(), Worker: "lost", Token: casework.NewID(), Session: session,
	})
}

// LookupLater asks the escrow service about a run, as if some time had passed.
func (s *Service) LookupLater(ctx context.Context, run background.Run, ahead time.Duration) background.Result {
	f := *s.settlements
	f.Now = func() time.Time { return s.now().Add(ahead) }
	return f.Lookup(ctx, run)
}

// FindNotExecuted states of a run what a lookup would that found nothing.
func (s *Service) FindNotExecuted(ctx context.Context, tenant string, run background.Run) error {
	_, err := s.cases.Reconcile(ctx, tenant, run.ID, "user:ada", casework.Finding{Class: escrow.NotExecuted}, casework.LookupSource{Class: escrow.NotExecuted, Attempt: run.Attempt}, casework.Guard{})
	return err
}

// SubmitAsOlderVersion submits as a version did that did not check for secrets. The payload is in
// canonical form.
func (s *Service) SubmitAsOlderVersion(ctx context.Context, a Adjudication) (Submitted, error) {
	payload := a.Payload
	if payload == nil {
		payload = []byte("{}")
	}
	request, err := binding.Request(a.Instruction, payload)
	if err != nil {
		return Submitted{}, err
	}
	ad := admission{
		Adjudication: a, run: background.RunID(casework.NewID()), caseID: background.CaseID(casework.NewID()), transition: casework.NewID(),
		queue: s.manager.Queue(Family, a.RetryKey()), policy: s.policies.base, request: request, digest: a.contentDigest(payload), at: s.now(),
	}
	return s.submit(ctx, ad.submission(), nil)
}

// SubmitTaskUnchecked submits a task that SubmitTask may refuse.
func (s *Service) SubmitTaskUnchecked(ctx context.Context, t Task) (Submitted, error) {
	return s.submit(ctx, s.taskSubmission(ctx, s.cases.PlainFamilies[t.Family], t), nil)
}

// RefuseLater records the refusal of an adjudication for a case that has ended, as if some time
// had passed.
func (s *Service) RefuseLater(ctx context.Context, a Adjudication, id receipts.CaseID, ahead time.Duration) (Submitted, error) {
	ad, err := s.admission(ctx, a)
	if err != nil {
		return Submitted{}, err
	}
	ad.at = ad.at.Add(ahead)
	return s.completeReply(ctx, &ad, Submitted{Reply: CaseEnded, Case: id}, true)
}

// BeginAgain records the request once more, as after a lost answer.
func (r *IdempotentRequest) BeginAgain(ctx context.Context, now time.Time) (begun bool, err error) {
	_, begun, err = r.journal.Requests.Begin(ctx, r.entry, now.Add(-requestTimeout), now.Add(-RequestRetention))
	return begun, err
}

// PruneUnlocked is a Prune beside those of other processes.
func (s *Service) PruneUnlocked(ctx context.Context) (PruneReport, error) {
	round := &pruneRound{keeper: s.keeper}
	var errs []error
	for _, rule := range s.keeper.rules.all() {
		errs = append(errs, round.applyRule(ctx, rule))
	}
	return round.report, errors.Join(append(errs, round.errs...)...)
}

// LimitArchive limits the time of a file, and the time for which the archive may take none.
func (s *Service) LimitArchive(limit time.Duration) {
	s.cases.Archive.(*letterArchive).timeout, s.plans.archiveLimit = limit, limit
}

// ExportWithin is an Export of dead letters with another limit of time.
func (s *Service) ExportWithin(ctx context.Context, tenant string, f deadletter.Filter, where string, format deadletter.Format, out io.Writer, limit time.Duration) (deadletter.Exported, error) {
	return s.letters.Export(ctx, tenant, f, where, format, out, limit)
}

// PlanWithin is a Plan with another bound of the letters and the time of its condition.
func (p Plans) PlanWithin(ctx context.Context, q BulkRequest, letters int64, limit time.Duration) (Bulk, error) {
	q.tenant, q.actor = p.tenant, p.actor
	return p.s.planBulk(ctx, q, scanLimit{letters, limit})
}

// PlanAgain repeats an existing plan of forks, from what is listed now, within a limit of letters.
// scope says how large the batches are and what of it the plan selects. judged is called for each
// letter.
func (p Plans) PlanAgain(ctx context.Context, like Bulk, f deadletter.Filter, scope plans.Scope, judged func()) (Bulk, error) {
	b, err := p.s.stored.Find(ctx, p.tenant, like.ID)
	if err != nil {
		return Bulk{}, err
	}
	b.ID = casework.NewID()
	digest := newBulkDigest(b)
	scope.Filter, scope.Hash = p.s.index.JournalFilter(f, like.PlannedAt), digest.Sum
	scope.GateOf = func(l *plans.Letter) string {
		digest.Add(l.Run.ID, l.Case.Head, l.Amount, l.Case.Currency)
		judged()
		return string(p.s.predictGate(BulkFork, l, like.PlannedAt))
	}
	if b, err = p.s.stored.Create(ctx, b, scope); err != nil {
		return Bulk{}, err
	}
	return p.s.withCounts(ctx, b)
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
	return p.s.workBulk(ctx, b)
}

// WhyNotStart returns why the caller may not start a plan, and does not start it.
func (p Plans) WhyNotStart(ctx context.Context, id uuid.UUID) (because string, err error) {
	by, err := p.s.newStarter(ctx, p.tenant, p.actor, nil)
	if err != nil {
		return "", err
	}
	b, err := p.s.findBulk(ctx, p.tenant, id)
	if err != nil {
		return "", err
	}
	return by.authorize(&b)
}
