package postadjudication

import (
	"context"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/engine"
	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/receipts"
)

// What black-box tests need of this package that its users do not.

const (
	PositionsPerReceipt     = eventlog.PositionsPerReceipt
	ReasonCaseEnded         = casework.ReasonCaseEnded
	ReasonPaidUnderOlderKey = casework.ReasonPaidUnderOlderKey
	RequestTimeout          = requestTimeout
)

var (
	ErrJournalUnavailable = casework.ErrJournalUnavailable
	ErrLetterChanged      = casework.ErrLetterChanged

	CanonicalPayload   = canonicalPayload
	HoldsInexactNumber = holdsInexactNumber
	InexactNumberIn    = inexactNumberIn
)

func (s *Service) Journal() *journal.Journal { return s.journal }
func (s *Service) Index() *search.Index      { return s.index }
func (s *Service) Engine() engine.Engine     { return s.engine }
func (s *Service) Family() background.Family { return s.settlements }
func (s *Service) Logger() *zap.Logger       { return s.log }

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
		ID: casework.NewID(), Run: run, Subtype: receipts.AttemptStarted, At: s.now(), Worker: "lost", Token: casework.NewID(), Session: session,
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
	_, err := s.applier.Reconcile(ctx, tenant, run.ID, "user:ada", casework.Finding{Class: escrow.NotExecuted}, casework.LookupSource{Class: escrow.NotExecuted, Attempt: run.Attempt}, casework.Guard{})
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
		queue: s.engine.Queue(Family, a.RetryKey()), policy: s.policies.base, request: request, digest: a.contentDigest(payload), at: s.now(),
	}
	return s.submit(ctx, ad.submission(), nil)
}

// SubmitTaskUnchecked submits a task that SubmitTask may refuse.
func (s *Service) SubmitTaskUnchecked(ctx context.Context, t Task) (Submitted, error) {
	return s.submit(ctx, s.taskSubmission(ctx, s.applier.PlainFamilies[t.Family], t), nil)
}

// RefuseLater records the refusal of an adjudication for a case that has ended, as if some time
// had passed.
func (s *Service) RefuseLater(ctx context.Context, a Adjudication, id receipts.CaseID, ahead time.Duration) (Submitted, error) {
	ad, err := s.admit(ctx, a)
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

// ExportWithin is an Export of dead letters with another limit of time.
func (s *Service) ExportWithin(ctx context.Context, tenant string, f deadletter.Filter, where string, format deadletter.Format, out io.Writer, limit time.Duration) (deadletter.Exported, error) {
	return s.letters.Export(ctx, tenant, f, where, format, out, limit)
}
