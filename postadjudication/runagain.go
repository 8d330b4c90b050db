package postadjudication

import (
	"context"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// Task returns the task that a run of a plain family carries. Errors: refusal.ErrNotFound if the tenant
// has no such run, background.ErrUnknownFamily if it is of no plain family of this process.
func (s *submissions) Task(ctx context.Context, tenant string, run background.RunID) (Task, error) {
	seen, err := s.applier.OwnRun(ctx, tenant, run)
	if err != nil {
		return Task{}, err
	}
	if s.applier.PlainFamilies[seen.Run.Family] == nil || seen.Run.Family == jobs.Family {
		return Task{}, fmt.Errorf("%w: %q", background.ErrUnknownFamily, seen.Run.Family)
	}
	return Task{Tenant: tenant, Family: seen.Run.Family, RetryKey: seen.Run.RetryKey, Payload: seen.Run.Payload}, nil
}

// Repetition asks for a new run of a task that has ended.
type Repetition struct {
	Reason    string // required
	RequestID string // identifies the request that asks for it, for the receipt, in at most 128 bytes of plain text without a secret; empty: none
}

// RunAgain commits a new run of a plain family's task. The run that is named must be the newest of its case,
// and have ended as anything but an open dead letter: Letters.Fork forks those. The new run is a fork of it,
// with its payload, policy and queue; the receipt has the actor and the reason. The reply is Created; or
// Deduplicated if the newest run is live, DeadLettered if it is an open letter, Superseded if it is another
// run that has ended, and Run is then that run.
//
// Errors: as of Task; a *refusal.FieldError for bad input.
func (t TenantCases) RunAgain(ctx context.Context, run background.RunID, q Repetition) (Submitted, error) {
	s := t.operator.s
	if !s.calls.begin() {
		return Submitted{}, ErrClosed
	}
	defer s.calls.end()
	if err := errors.Join(validate.Actor(t.actor, q.Reason), checkRequest(q.RequestID)); err != nil {
		return Submitted{}, err
	}
	if _, err := s.Task(ctx, t.operator.tenant, run); err != nil {
		return Submitted{}, err
	}
	seen, err := s.applier.OwnRun(ctx, t.operator.tenant, run)
	if err != nil {
		return Submitted{}, err
	}
	if err := s.applier.Engine.MeasureClock(ctx); err != nil {
		return Submitted{}, err
	}
	return s.submit(ctx, s.repetition(seen, t.actor, q), nil)
}

// repetition submits the task of a run once more.
func (s *submissions) repetition(of journal.Snapshot, actor string, q Repetition) journal.Submission {
	id := background.RunID(casework.NewIDAt(s.now()))
	again := func(seen *journal.Snapshot) (journal.Change, error) {
		if reply := replyToTask(seen, false); reply != Created {
			return journal.Change{}, replyError(reply)
		}
		if seen.Run.ID != of.Run.ID {
			return journal.Change{}, replyError(Superseded)
		}
		now, last := s.now(), seen.Run
		next := background.Run{
			ID: id, Case: last.Case, Tenant: last.Tenant, Family: last.Family, RetryKey: last.RetryKey, Queue: last.Queue, Target: last.Target,
			Parent: last.ID, Policy: last.Policy, Payload: last.Payload, State: background.Pending, DueAt: now, NotificationNumber: 1, LastTransition: casework.NewID(),
		}
		accepted := submittedTask(next, actor, q.RequestID, now)
		accepted.Payload.ParentRun, accepted.Payload.Reason = last.ID, validate.Clean(q.Reason, 1024)
		return nextTaskRun(seen, next, accepted), nil
	}
	return journal.Submission{
		Tenant: of.Run.Tenant, Kind: of.Case.Kind, Subject: of.Case.Subject, Run: id, Decide: again,
	}
}
