package casework

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// Failure types of a lookup whose answer "not executed" is not conclusive.
const (
	lookupOutstanding = "lookup.call_outstanding" // a call has not returned
	lookupPremature   = "lookup.premature"        // an abandoned call may be in flight
	lookupForgotten   = "lookup.forgotten"        // the escrow service may have forgotten the key
	lookupUnsure      = "lookup.unsure"           // the call history or the earlier answers can't be read
	lookupSaidOnce    = "lookup.said_once"        // a replica may lag: the same answer is needed once more
)

// lookupUnsupported is the failure type of a lookup that nobody can answer.
const lookupUnsupported = "lookup.unsupported"

// lookupEvidence is everything that decides what the answer of a lookup means.
type lookupEvidence struct {
	answer escrow.Class

	// Calls that may still pay.
	outstanding   bool          // a call has not returned, and its process may be alive
	sinceLastCall time.Duration // since the last call began, returned or was abandoned
	lostCall      bool          // a call of a lost process has not returned
	sinceLost     time.Duration // since that process was found lost
	maxSendDelay  time.Duration // how long after its claim a call is sent at most: call bound and time limit
	inFlight      time.Duration // how long an abandoned call may be in flight; 0 or less: the executor judges by itself

	// How long the service knows the key.
	called       bool          // a call was made under the key
	keyAge       time.Duration // since the first call; negative if it is unknown
	keyRetention time.Duration // how long after the first call the service knows the key
	margin       time.Duration // subtracted from keyRetention; see Settlements.margin
}

// conclude returns the outcome that an answer proves, and the reason if it differs from the
// answer. Executed is always believed. NotExecuted is believed only if no call can be in
// flight, and only while the service must still know the key: a service that has forgotten the
// key gives the same answer. Every lookup is judged by this rule, whoever makes it.
func (q lookupEvidence) conclude() (escrow.Class, string) {
	switch {
	case q.answer == escrow.Executed:
		return escrow.Executed, ""
	case q.answer != escrow.NotExecuted:
		return escrow.Unknown, ""
	case q.outstanding:
		return escrow.Unknown, lookupOutstanding
	case q.called && q.keyRetention != escrow.Forever && (q.keyAge < 0 || q.keyAge >= q.keyRetention-q.margin):
		return escrow.Unknown, lookupForgotten
	case q.remainingFlight() > 0:
		return escrow.Unknown, lookupPremature
	}
	return escrow.NotExecuted, ""
}

// remainingFlight returns how much longer a call may be in flight; 0 if none can be.
func (q lookupEvidence) remainingFlight() time.Duration {
	var left time.Duration
	if q.inFlight > 0 {
		left = q.maxSendDelay + q.inFlight + 2*background.MaxClockOffset - q.sinceLastCall
	}
	if q.lostCall {
		left = max(left, q.maxSendDelay+max(0, q.inFlight)+2*background.MaxClockOffset-q.sinceLost)
	}
	return max(0, left)
}

// Lookup asks the escrow service about the run's operation key. It records the first answer NotExecuted, and returns
// Unknown for it, with the time until the next one in RetryAfter: see weigh.
func (f *SettlementFamily) Lookup(ctx context.Context, r background.Run) background.Result {
	answer := lookUpWithin(ctx, f, r, false, f.CallTimeLimit*9/10) // before the caller gives up: an accepted call is asked about again
	found := awaitingEnd(f, &r, answer)
	switch {
	case found.Class == escrow.Executed:
		return found
	case found.Class == escrow.Unknown && !answer.Accepted && !r.AwaitsEnd():
		found.RetryAfter = 0 // whatever the service asks for: a dead letter is looked up again
		return found
	}
	was, err := f.Journal.Lookups.Find(ctx, r.Tenant, r.ID)
	if err != nil {
		return awaitingEnd(f, &r, unknownResult(lookupUnsure, err.Error()))
	}
	now := f.Now()
	said := found
	said.Accepted = answer.Accepted // also once the span is over
	next, believed := weigh(f, &was, &r, said, now)
	if believed {
		return found
	}
	if found.Class == escrow.Unknown && found.RetryAfter > 0 {
		next.NextAt = now.Add(found.RetryAfter)
	}
	if err := f.Journal.Lookups.Record(ctx, next); err != nil {
		return awaitingEnd(f, &r, unknownResult(lookupUnsure, err.Error()))
	}
	if found.Class == escrow.Unknown {
		return found
	}
	once := unknownResult(lookupSaidOnce, "nothing was executed, the escrow service says for the first time: the same answer is needed again")
	if next.ManualReason == "" {
		once.Retry, once.RetryAfter = true, next.NextAt.Sub(now)
	}
	return once
}

// lookUp asks the escrow service, and returns what the one answer proves. noCallInFlight means that the caller
// knows by its own clock that no call can be in flight, unless one is outstanding.
func (f *SettlementFamily) lookUp(ctx context.Context, r background.Run, noCallInFlight bool) background.Result {
	executor := f.ExecutorOf(r.Target)
	if executor == nil {
		return unknownResult(failureTargetUnknown, "this process does not call the escrow service "+r.Target)
	}
	lookuper, ok := executor.(escrow.Lookuper)
	switch {
	case escrow.IsRemote(r.Target):
		return unknownResult(lookupUnsupported, "remote workers pay for "+r.Target+", so there is no escrow service to ask")
	case !ok:
		return unknownResult(lookupUnsupported, "the executor has no lookup")
	}
	call, err := callOf(r, r.Attempt)
	if err != nil {
		return unknownResult(background.ReasonRequestAltered, err.Error())
	}
	q, err := f.readLookupEvidence(ctx, r)
	return ask(ctx, f, lookuper, call, &r, q, err, noCallInFlight)
}

// ask makes the call of lookUp. unread is why the evidence could not be read; nil if it was.
func ask(ctx context.Context, f *SettlementFamily, of escrow.Lookuper, call escrow.Call, r *background.Run, q lookupEvidence, unread error, noCallInFlight bool) background.Result {
	if unread == nil && !q.outstanding {
		call.SentAgo = max(0, q.sinceLastCall-f.CallTimeLimit)
	}
	found := resultOf(of.Lookup(ctx, call), call.Amount.Minor)
	if unread != nil && found.Class == escrow.NotExecuted {
		return unknownResult(lookupUnsure, unread.Error())
	}
	if noCallInFlight {
		q.sinceLastCall, q.sinceLost = escrow.Forever/2, escrow.Forever/2
	}
	q.answer, q.keyAge = found.Class, keyAge(f, r.FirstSentAt, f.Now())
	if class, why := q.conclude(); class != found.Class {
		return unknownResult(why, q.explain(why))
	}
	return found
}

// lookUpWithTimeout is lookUpWithin the time limit of a call, for lookups outside an attempt.
func (c *Applier) lookUpWithTimeout(ctx context.Context, r background.Run, noCallInFlight bool) background.Result {
	found := lookUpWithin(ctx, c.Settlements, r, noCallInFlight, c.Settlements.CallTimeLimit)
	if found.Failure != nil && found.Failure.Type == background.FailurePanic {
		c.Log.Warn("a lookup panicked", zap.Stringer("run", r.ID), zap.String("panic", found.Failure.Message))
	}
	return found
}

// lookUpWithin is lookUp within a time limit. If the lookup panics or ignores its context, the answer is Unknown and the
// caller is not blocked.
func lookUpWithin(ctx context.Context, f *SettlementFamily, r background.Run, noCallInFlight bool, limit time.Duration) background.Result {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answers := make(chan background.Result, 1)
	go func() {
		var found background.Result
		if err := RecoverPanic(func() error { found = f.lookUp(ctx, r, noCallInFlight); return nil }); err != nil {
			found = unknownResult(background.FailurePanic, "the lookup panicked: "+err.Error())
		}
		answers <- found
	}()
	select {
	case found := <-answers:
		return found
	case <-ctx.Done():
		return unknownResult(background.FailureTimeout, "the lookup timed out")
	}
}

func unknownResult(kind, message string) background.Result {
	return background.Result{Class: escrow.Unknown, Failure: &background.Failure{Type: kind, Message: message}}
}

// explain returns for people why the answer "not executed" is not conclusive.
func (q lookupEvidence) explain(why string) string {
	switch why {
	case lookupOutstanding:
		return "nothing was executed yet, but a call has not returned and may still pay"
	case lookupForgotten:
		return "the escrow service finds nothing, and may have forgotten the operation key by now: only a finding counts"
	default:
		return fmt.Sprintf("nothing was executed yet, but an abandoned call may still be in flight: look up again in %s", (q.remainingFlight() + time.Second - 1).Truncate(time.Second))
	}
}

// readLookupEvidence reads the calls under the operation key of a run.
func (f *SettlementFamily) readLookupEvidence(ctx context.Context, r background.Run) (lookupEvidence, error) {
	runs, trail, err := f.Journal.Cases.WithTrail(ctx, r.Tenant, r.Case)
	if err != nil {
		return lookupEvidence{}, err
	}
	return lookupEvidenceOf(f, r, runs, trail, func(workers []string) (bool, error) { return f.anyAlive(ctx, workers) })
}

// lookupEvidenceOf returns what the runs and receipts of a case say of the calls under the operation key of one of its
// runs. anyAlive reports whether one of the named processes may be alive.
func lookupEvidenceOf(f *SettlementFamily, r background.Run, runs []journal.Snapshot, trail []receipts.Receipt, anyAlive func([]string) (bool, error)) (lookupEvidence, error) {
	q := lookupEvidence{maxSendDelay: f.CallBound + f.CallTimeLimit, inFlight: f.inFlight(r.Target), called: !r.FirstSentAt.IsZero(), keyAge: keyAge(f, r.FirstSentAt, f.Now()), keyRetention: f.lookupLifetime(r.Target), margin: f.margin()}
	t, err := callHistoryOf(r, runs, trail)
	if err != nil {
		return q, fmt.Errorf("%w: its receipts: %w", background.ErrUnreadable, err)
	}
	if q.outstanding = t.running; !q.outstanding && len(t.workers) > 0 {
		if q.outstanding, err = anyAlive(t.workers); err != nil {
			return q, err
		}
		t.lostAt = t.lastEvent // their processes are lost, and the calls were abandoned by then
	}
	now := f.Now()
	if r.State == background.Running {
		t.lastEvent = now // its call returned just now
	}
	q.sinceLastCall, q.lostCall, q.sinceLost = elapsed(f, t.lastEvent, now), !t.lostAt.IsZero(), elapsed(f, t.lostAt, now)
	return q, nil
}

// anyAlive reports whether one of the named processes may be alive.
func (f *SettlementFamily) anyAlive(ctx context.Context, workers []string) (bool, error) {
	sessions, err := f.Journal.Sessions.Sessions(ctx)
	return slices.ContainsFunc(sessions, func(s background.Session) bool {
		return !s.Lost && slices.Contains(workers, s.Worker)
	}), err
}

// callHistory is the history of calls under an operation key, from the receipts of a case.
type callHistory struct {
	running   bool      // the running attempt has abandoned its call, which goes on
	workers   []string  // processes whose calls had not returned when their attempts ended
	lastEvent time.Time // when a call last began, returned or was abandoned
	lostAt    time.Time // when a process was found lost during a call; zero if none was
}

// callHistoryOf reads the calls under a run's operation key from the trail of its case. The run's
// OutstandingCalls may be newer than the trail.
func callHistoryOf(r background.Run, runs []journal.Snapshot, trail []receipts.Receipt) (callHistory, error) {
	t := callHistory{running: r.State == background.Running && slices.Contains(r.OutstandingCalls, r.Attempt)}
	outstanding := map[background.RunID][]int{r.ID: r.OutstandingCalls}
	for _, s := range runs {
		if s.Run.ID != r.ID && s.Run.Operation == r.Operation {
			outstanding[s.Run.ID] = s.Run.OutstandingCalls
		}
	}
	workers, lost := map[callID]string{}, map[callID]bool{}
	for _, rec := range trail {
		if _, same := outstanding[rec.Run]; !same || !callSubtypes[rec.Subtype] {
			continue
		}
		p, err := rec.Payload()
		if err != nil {
			return t, err
		}
		c := callID{rec.Run, p.Attempt}
		if t.lastEvent = Later(t.lastEvent, rec.At); rec.Subtype == receipts.AttemptStarted {
			workers[c] = p.Worker
		} else if strings.HasPrefix(rec.Actor, background.ObserverActor) {
			t.lostAt, lost[c] = Later(t.lostAt, rec.At), true
		}
	}
	for run, attempts := range outstanding {
		for _, n := range attempts {
			if c := (callID{run, n}); !lost[c] {
				t.workers = append(t.workers, workers[c])
			}
		}
	}
	return t, nil
}

type callID struct {
	run     background.RunID
	attempt int
}

// callSubtypes are the receipts of calls that began, returned or were abandoned.
var callSubtypes = map[receipts.Subtype]bool{
	receipts.AttemptStarted: true, receipts.AttemptSucceeded: true, receipts.RetryScheduled: true, receipts.AttemptInterrupted: true,
	receipts.DeadLettered: true, receipts.Cancelled: true, receipts.AnsweredLate: true,
}

// maxInFlight caps the time that a call may be in flight, such as Forever: sums with it must not
// overflow, for the call would then count as ended. It is longer than any wait.
const maxInFlight = escrow.Forever / 2

// inFlight returns how long an abandoned call may still be executed, as the executor states;
// 0 if the executor judges by itself. DefaultInFlight applies if the executor states nothing.
func (f *SettlementFamily) inFlight(target string) time.Duration {
	span := f.DefaultInFlight
	if states, ok := f.ExecutorOf(target).(escrow.InFlighter); ok {
		span = states.InFlight()
	}
	return min(span, maxInFlight)
}

// lookupLifetime returns how long after the first call the escrow service can look a key up.
func (f *SettlementFamily) lookupLifetime(target string) time.Duration {
	executor := f.ExecutorOf(target)
	if executor == nil {
		return 0
	}
	life := executor.KeyLifetime()
	if states, ok := executor.(escrow.LookupLifetimer); ok {
		life = max(life, states.LookupLifetime())
	}
	return life
}

// mayStillPay returns why a call under a run's operation key may be in flight; empty if none
// can be.
func (f *SettlementFamily) mayStillPay(ctx context.Context, r background.Run) (string, error) {
	if everyCallWasRefused(&r) {
		return "", nil
	}
	q, err := f.readLookupEvidence(ctx, r)
	if err != nil {
		return "", err
	}
	if why := q.whyMayPay(); why != "" {
		return why, nil
	}
	was, err := f.Journal.Lookups.Find(ctx, r.Tenant, r.ID)
	if err == nil && wasAccepted(&r, &was) {
		return "the escrow service said last that it has accepted the call and not ended it", nil
	}
	return "", err
}

// wasAccepted reports whether the last that the escrow service said of a run's call is that it has accepted the call and
// not ended it.
func wasAccepted(r *background.Run, was *journal.LookupRecord) bool {
	return r.AwaitsEnd() || was.Attempt == r.Attempt && was.FailureType == failureAccepted
}

func everyCallWasRefused(r *background.Run) bool {
	return r.UnknownOpen == 0 && !r.HasOutstandingCall()
}

// whyMayPay returns why a call may be in flight; empty if none can be.
func (q lookupEvidence) whyMayPay() string {
	switch left := q.remainingFlight(); {
	case q.outstanding:
		return "a call has not returned and may still pay"
	case left > 0:
		return "an abandoned call may still be in flight for " + (left + time.Second - 1).Truncate(time.Second).String()
	}
	return ""
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
