package postadjudication

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// DefaultInFlight is how long a call that was given up may still be executed where nobody
// states another span.
const DefaultInFlight = time.Minute

// Why an answer that nothing was executed is not believed, as types of failures.
const (
	lookupOutstanding = "lookup.call_outstanding" // a call has not come back
	lookupPremature   = "lookup.premature"        // a call that was given up may be on its way
	lookupForgotten   = "lookup.forgotten"        // the escrow service may have forgotten the key
	lookupUnsure      = "lookup.unsure"           // what was sent can't be read
)

// inquiry is what decides what the answer of a lookup means.
type inquiry struct {
	answer Class

	// What may still pay.
	outstanding bool          // a call has not come back, and its process may live
	quiet       time.Duration // since the last call came back or was given up
	lost        bool          // a call of a process that is gone has not come back
	lostFor     time.Duration // since it was found gone
	reach       time.Duration // how long after its claim a call is sent at most: call bound and time limit
	inFlight    time.Duration // how long a call that was given up is on its way; 0 or less: the executor judges by itself

	// For how long the service knows the key.
	first     bool          // a call was made under the key
	age       time.Duration // of the first call; negative where the clock stands before it
	remembers time.Duration // how long after the first call the service knows the key
	margin    time.Duration // taken off remembers; see family.margin
}

// means returns what is known after the answer, and why it is not what was answered.
// Executed is believed always. Not executed is believed only when nothing can be on its
// way any more, and only while the service must still know the key: one that has forgotten
// a key says the same. It is the one rule for every lookup, whoever asks.
func (q inquiry) means() (Class, string) {
	switch {
	case q.answer == Executed:
		return Executed, ""
	case q.answer != NotExecuted:
		return Unknown, ""
	case q.outstanding:
		return Unknown, lookupOutstanding
	case q.first && q.remembers != Forever && (q.age < 0 || q.age >= q.remembers-q.margin):
		return Unknown, lookupForgotten
	case q.onItsWay() > 0:
		return Unknown, lookupPremature
	}
	return NotExecuted, ""
}

// onItsWay is for how much longer a call may be on its way; 0 when none can be.
func (q inquiry) onItsWay() time.Duration {
	var left time.Duration
	if q.inFlight > 0 {
		left = q.reach + q.inFlight + 2*background.ClockBound - q.quiet
	}
	if q.lost {
		left = max(left, q.reach+max(0, q.inFlight)+2*background.ClockBound-q.lostFor)
	}
	return max(0, left)
}

// untilForgotten is how long after its first call a key that is known for a time is
// counted on.
func (f *family) untilForgotten(life time.Duration) time.Duration { return life - f.margin() }

// margin is taken off the lifetime of an operation key, beside a call's own time
// limit: a call leaves within the call bound of its claim, and the clocks of the
// process that made the first call and of this one may each be off by ClockBound.
func (f *family) margin() time.Duration { return f.callBound + 2*background.ClockBound }

// Lookup asks the escrow service what became of the run's operation key.
func (f *family) Lookup(ctx context.Context, r background.Run) background.Result {
	return f.lookUp(ctx, r, false)
}

// lookUp is Lookup. settled says that the caller has seen on its own clock that no call can
// be on its way, unless one is outstanding.
func (f *family) lookUp(ctx context.Context, r background.Run, settled bool) background.Result {
	executor := f.executorOf(r.Target)
	if executor == nil {
		return doubtful(failureTargetUnknown, "this process does not call the escrow service "+r.Target)
	}
	asker, ok := executor.(Lookuper)
	if !ok {
		return doubtful("lookup.unsupported", "the executor has no lookup")
	}
	call, err := callOf(r, r.Attempt)
	if err != nil {
		return doubtful(background.ReasonRequestAltered, err.Error())
	}
	q, err := f.inquiry(ctx, r)
	if err == nil && !q.outstanding {
		call.SentAgo = max(0, q.quiet-f.limit)
	}
	found := resultOf(asker.Lookup(ctx, call), call.Amount.Minor)
	if err != nil && found.Class == NotExecuted {
		return doubtful(lookupUnsure, err.Error())
	}
	if settled {
		q.quiet, q.lostFor = Forever/2, Forever/2
	}
	q.answer, q.age = found.Class, f.now().Sub(r.FirstSentAt)
	if class, why := q.means(); class != found.Class {
		return doubtful(why, q.because(why))
	}
	return found
}

// lookedUp is lookUp within the time limit of a call, for whoever is no attempt. A lookup
// that panics, or that hangs whatever its context says, tells nothing and holds up nobody.
func (s *Service) lookedUp(ctx context.Context, r background.Run, settled bool) background.Result {
	ctx, cancel := context.WithTimeout(ctx, s.settlements.limit)
	defer cancel()
	answers := make(chan background.Result, 1)
	go func() {
		found := doubtful(background.FailurePanic, "the lookup panicked")
		err := survived(func() error { found = s.settlements.lookUp(ctx, r, settled); return nil })
		if err != nil {
			s.log.Warn("a lookup panicked", zap.Stringer("run", r.ID), zap.Error(err))
		}
		answers <- found
	}()
	select {
	case found := <-answers:
		return found
	case <-ctx.Done():
		return doubtful(background.FailureTimeout, "the lookup was not answered in time")
	}
}

func doubtful(kind, message string) background.Result {
	return background.Result{Class: Unknown, Failure: &background.Failure{Type: kind, Message: message}}
}

// because tells a person why an answer that nothing was executed is not believed.
func (q inquiry) because(why string) string {
	switch why {
	case lookupOutstanding:
		return "nothing was executed yet, but a call has not come back, which may pay yet"
	case lookupForgotten:
		return "the escrow service finds nothing, and may have forgotten the operation key by now: only a finding counts"
	default:
		return fmt.Sprintf("nothing was executed yet, but a call that was given up may still be on its way: ask again in %s", (q.onItsWay() + time.Second - 1).Truncate(time.Second))
	}
}

// inquiry reads what was sent under the operation key of a run.
func (f *family) inquiry(ctx context.Context, r background.Run) (inquiry, error) {
	q := inquiry{reach: f.callBound + f.limit, inFlight: f.inFlight(r.Target), first: !r.FirstSentAt.IsZero(), age: f.now().Sub(r.FirstSentAt), remembers: f.remembers(r.Target), margin: f.margin()}
	runs, trail, err := f.journal.CaseAtOnce(ctx, r.Tenant, r.Case)
	if err != nil {
		return q, err
	}
	t, err := trafficOf(r, runs, trail)
	if err != nil {
		return q, err
	}
	if q.outstanding = t.running; !q.outstanding && len(t.workers) > 0 {
		if q.outstanding, err = f.anyLives(ctx, t.workers); err != nil {
			return q, err
		}
		t.lost = t.last // they are gone, and their calls were given up by then
	}
	now := f.now()
	if r.State == background.Running {
		t.last = now // its call came back just now
	}
	q.quiet, q.lost, q.lostFor = max(0, now.Sub(t.last)), !t.lost.IsZero(), max(0, now.Sub(t.lost))
	return q, nil
}

// anyLives reports whether one of the processes named may live.
func (f *family) anyLives(ctx context.Context, workers []string) (bool, error) {
	sessions, err := f.journal.Sessions(ctx)
	return slices.ContainsFunc(sessions, func(s background.Session) bool {
		return !s.Lost && slices.Contains(workers, s.Worker)
	}), err
}

// traffic is what the receipts of a case tell of the calls under an operation key.
type traffic struct {
	running bool      // the attempt that runs has given up its call, which goes on
	workers []string  // processes whose calls had not come back when their attempts ended
	last    time.Time // when a call was begun, came back or was given up last
	lost    time.Time // when a process was found lost in the middle of one; zero when none was
}

// trafficOf reads the calls under a run's operation key off the trail of its case. What
// the run itself says of its calls may be newer than the trail.
func trafficOf(r background.Run, runs []postgres.Snapshot, trail []receipts.Receipt) (traffic, error) {
	t := traffic{running: r.State == background.Running && slices.Contains(r.OutstandingCalls, r.Attempt)}
	outstanding := map[background.RunID][]int{r.ID: r.OutstandingCalls}
	for _, s := range runs {
		if s.Run.ID != r.ID && s.Run.Operation == r.Operation {
			outstanding[s.Run.ID] = s.Run.OutstandingCalls
		}
	}
	workers, gone := map[callID]string{}, map[callID]bool{}
	for _, rec := range trail {
		if _, same := outstanding[rec.Run]; !same || !aboutCalls[rec.Subtype] {
			continue
		}
		p, err := rec.Payload()
		if err != nil {
			return t, err
		}
		c := callID{rec.Run, p.Attempt}
		if t.last = later(t.last, rec.At); rec.Subtype == receipts.AttemptStarted {
			workers[c] = p.Worker
		} else if strings.HasPrefix(rec.Actor, background.ObserverActor) {
			t.lost, gone[c] = later(t.lost, rec.At), true
		}
	}
	for run, attempts := range outstanding {
		for _, n := range attempts {
			if c := (callID{run, n}); !gone[c] {
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

// aboutCalls are the receipts that tell that a call was begun, came back or was given up.
var aboutCalls = map[receipts.Subtype]bool{
	receipts.AttemptStarted: true, receipts.AttemptSucceeded: true, receipts.RetryScheduled: true, receipts.AttemptInterrupted: true,
	receipts.DeadLettered: true, receipts.Cancelled: true, receipts.AnsweredLate: true,
}

// longestFlight stands for every longer span that a call may be on its way, as Forever: what
// is added to it must not run over, for a call would then pass for one that is over. It is
// longer than anything that is waited for.
const longestFlight = Forever / 2

// inFlight is how long a call that was given up may still be executed, as the executor
// states; 0 when it states that it judges by itself. Where none states it, a span is
// assumed.
func (f *family) inFlight(target string) time.Duration {
	span := f.assumed
	if states, ok := f.executorOf(target).(InFlighter); ok {
		span = states.InFlight()
	}
	return min(span, longestFlight)
}

// remembers is how long after the first call the escrow service tells what became of a key.
func (f *family) remembers(target string) time.Duration {
	executor := f.executorOf(target)
	if executor == nil {
		return 0
	}
	life := executor.KeyLifetime()
	if states, ok := executor.(LookupLifetimer); ok {
		life = max(life, states.LookupLifetime())
	}
	return life
}

// mayPayYet tells why a call under a run's operation key may be on its way; empty when none
// can be.
func (f *family) mayPayYet(ctx context.Context, r background.Run) (string, error) {
	if r.UnknownOpen == 0 && !r.CallIsOut() {
		return "", nil // every call was refused
	}
	q, err := f.inquiry(ctx, r)
	switch {
	case err != nil:
		return "", err
	case q.outstanding:
		return "a call has not come back, which may pay yet", nil
	case q.onItsWay() > 0:
		return "a call that was given up may still be on its way for " + (q.onItsWay() + time.Second - 1).Truncate(time.Second).String(), nil
	}
	return "", nil
}
