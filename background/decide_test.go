package background

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

var (
	noon         = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	failure      = &Failure{Type: "http.refused"}
	paid         = Result{Class: Executed, Moved: 7, Reference: "ref"}
	refused      = Result{Class: NotExecuted, Retry: true, Failure: failure}
	declined     = Result{Class: NotExecuted, Failure: failure}
	vague        = Result{Class: Unknown, Retry: true, Failure: failure}
	finalUnknown = Result{Class: Unknown, Failure: failure}
)

func TestDecide(t *testing.T) {
	t.Parallel()
	foundPaid := vague
	foundPaid.Moved, foundPaid.Reference = 7, "ref"
	retry := func(r Result, d time.Duration) ending {
		return ending{subtype: receipts.RetryScheduled, charge: ChargeAttempt, result: r, next: noon.Add(d)}
	}
	deadLetter := func(r Result, lookup Class, reason string) ending {
		return ending{subtype: receipts.DeadLettered, charge: ChargeAttempt, result: r, lookup: lookup, reason: reason}
	}
	success := func(r Result, lookup Class) ending {
		return ending{subtype: receipts.AttemptSucceeded, result: r, lookup: lookup}
	}
	later := refused
	later.RetryAfter = 3 * time.Second
	accepted := vague
	accepted.Accepted, accepted.RetryAfter = true, 2*time.Second
	ask := func(r Result, lookup Class) ending {
		return ending{subtype: receipts.RetryScheduled, result: r, lookup: lookup, reason: receipts.ReasonAccepted, next: noon.Add(2 * time.Second)}
	}
	named := retrypolicy.Policy{NonRetryable: []string{"http.*"}}
	for name, c := range map[string]struct {
		run    Run
		res    Result
		looked *Result
		want   ending
		ask    bool
	}{
		"success":                             {Run{}, paid, nil, success(paid, ""), false},
		"success of the last attempt":         {Run{BudgetSpent: 2}, paid, nil, success(paid, ""), false},
		"success though cancel was requested": {Run{CancelRequested: true}, paid, nil, success(paid, ""), false},
		"success after an unknown":            {Run{Class: Unknown, UnknownOpen: 1}, paid, nil, success(paid, ""), false},
		"failure, known to be paid":           {Run{Class: Executed}, refused, nil, success(refused, Executed), false},

		"first failure":              {Run{}, refused, nil, retry(refused, 25*time.Millisecond), false},
		"second failure":             {Run{BudgetSpent: 1, Attempt: 9}, refused, nil, retry(refused, 50*time.Millisecond), false},
		"third failure":              {Run{BudgetSpent: 2}, refused, nil, deadLetter(refused, "", ReasonRetryExhausted), false},
		"asked to wait":              {Run{}, later, nil, retry(later, 3*time.Second), false},
		"first unknown":              {Run{}, vague, nil, retry(vague, 25*time.Millisecond), false},
		"final refusal":              {Run{}, declined, nil, deadLetter(declined, "", ReasonFinal), false},
		"type that is never retried": {Run{Policy: named}, refused, nil, deadLetter(refused, "", ReasonNonRetryableType), false},
		"interruptions spend no budget": {Run{Attempt: 5, BudgetSpent: 0}, refused, nil,
			retry(refused, 25*time.Millisecond), false},

		"cancel, nothing paid":                     {Run{CancelRequested: true}, refused, nil, ending{subtype: receipts.Cancelled, result: refused}, false},
		"cancel of a final refusal":                {Run{CancelRequested: true}, declined, nil, ending{subtype: receipts.Cancelled, result: declined}, false},
		"cancel, this attempt unknown":             {Run{CancelRequested: true}, vague, nil, retry(vague, 25*time.Millisecond), false},
		"cancel, an earlier one unknown":           {Run{CancelRequested: true, Class: Unknown}, refused, nil, retry(refused, 25*time.Millisecond), false},
		"cancel, unknown in another run":           {Run{CancelRequested: true, UnknownOpen: 1}, refused, nil, retry(refused, 25*time.Millisecond), false},
		"unknown, budget spent":                    {Run{BudgetSpent: 2}, vague, nil, ending{}, true},
		"unknown, final":                           {Run{}, finalUnknown, nil, ending{}, true},
		"refused after an earlier unknown":         {Run{BudgetSpent: 2, Class: Unknown}, refused, nil, ending{}, true},
		"refused, unknown in another run":          {Run{BudgetSpent: 2, UnknownOpen: 1}, refused, nil, ending{}, true},
		"looked up: paid":                          {Run{BudgetSpent: 2}, vague, &paid, success(foundPaid, Executed), false},
		"looked up: not paid":                      {Run{BudgetSpent: 2}, vague, &refused, deadLetter(vague, NotExecuted, ReasonRetryExhausted), false},
		"looked up: not paid, and asked to cancel": {Run{BudgetSpent: 2, CancelRequested: true}, vague, &refused, ending{subtype: receipts.Cancelled, result: vague, lookup: NotExecuted}, false},
		"looked up: unknown":                       {Run{BudgetSpent: 2}, vague, &finalUnknown, deadLetter(vague, Unknown, ReasonRetryExhausted), false},
		"looked up though a retry is left":         {Run{}, vague, &refused, retry(vague, 25*time.Millisecond), false},
		"cancel during the lookup":                 {Run{BudgetSpent: 2, CancelRequested: true}, vague, &finalUnknown, deadLetter(vague, Unknown, ReasonRetryExhausted), false},
		"accepted":                                 {Run{}, accepted, nil, ask(accepted, ""), false},
		"accepted, budget spent":                   {Run{BudgetSpent: 2}, accepted, nil, ask(accepted, ""), false},
		"accepted, asked to cancel":                {Run{CancelRequested: true}, accepted, nil, ask(accepted, ""), false},
		"accepted, known to be paid":               {Run{Class: Executed}, accepted, nil, success(accepted, Executed), false},
		"looked up: accepted":                      {Run{BudgetSpent: 2}, vague, &accepted, ask(vague, Unknown), false},
		"reason stays after a lookup":              {Run{}, finalUnknown, &finalUnknown, deadLetter(finalUnknown, Unknown, ReasonFinal), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run.Operation = [32]byte{1}
			got, needsLookup := decide(&c.run, &c.res, c.looked, noon)
			if needsLookup != c.ask {
				t.Errorf("needs lookup %v, want %v", needsLookup, c.ask)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(ending{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// For a run that moves no money an unknown outcome is a failure: there is no lookup, and a
// requested cancel is honoured.
func TestAnUnknownOutcomeOfARunWithoutMoneyIsAFailure(t *testing.T) {
	t.Parallel()
	if end, needsLookup := decide(&Run{BudgetSpent: 2}, &vague, nil, noon); needsLookup || end.subtype != receipts.DeadLettered {
		t.Errorf("%+v, %v", end, needsLookup)
	}
	if end, needsLookup := decide(&Run{Class: Unknown, UnknownOpen: 1, CancelRequested: true}, &vague, nil, noon); needsLookup || end.subtype != receipts.Cancelled {
		t.Errorf("%+v, %v", end, needsLookup)
	}
	waiting := runIn(Scheduled)
	waiting.Operation, waiting.Class, waiting.UnknownOpen = [32]byte{}, Unknown, 1
	if got, err := applied(&Transition{Subtype: receipts.Cancelled, Run: waiting}, waiting); err != nil || got.State != Cancelled {
		t.Errorf("%+v, %v", got, err)
	}
}

// A run that moves money is kept however it fails, and whoever orders its end. Another one is
// discarded if its policy or its worker says so.
func TestWhatIsDiscarded(t *testing.T) {
	t.Parallel()
	discards, keeps := retrypolicy.Policy{OnExhaustion: retrypolicy.Discard}, retrypolicy.Policy{}
	money := [32]byte{1}
	ordered := func(order EndOrder) Result { r := refused; r.End = order; return r }
	for name, c := range map[string]struct {
		run    Run
		res    Result
		event  receipts.Subtype
		reason string
	}{
		"kept":                              {Run{Policy: keeps, BudgetSpent: 2}, refused, receipts.DeadLettered, ReasonRetryExhausted},
		"discarded":                         {Run{Policy: discards, BudgetSpent: 2}, refused, receipts.Discarded, ReasonRetryExhausted},
		"discarded as final":                {Run{Policy: discards}, declined, receipts.Discarded, ReasonFinal},
		"not yet":                           {Run{Policy: discards}, refused, receipts.RetryScheduled, ""},
		"ordered, with attempts left":       {Run{Policy: keeps}, ordered(EndDiscarded), receipts.Discarded, ReasonOrdered},
		"kept by order":                     {Run{Policy: discards}, ordered(EndDeadLettered), receipts.DeadLettered, ReasonOrdered},
		"kept by order at the last attempt": {Run{Policy: discards, BudgetSpent: 2}, ordered(EndDeadLettered), receipts.DeadLettered, ReasonOrdered},
		"money":                             {Run{Policy: discards, BudgetSpent: 2, Operation: money}, refused, receipts.DeadLettered, ReasonRetryExhausted},
		"money, ordered":                    {Run{Policy: discards, Operation: money}, ordered(EndDiscarded), receipts.DeadLettered, ReasonOrdered},
		"cancelled first":                   {Run{Policy: discards, CancelRequested: true}, ordered(EndDiscarded), receipts.Cancelled, ""},
	} {
		end, needsLookup := decide(&c.run, &c.res, nil, noon)
		if needsLookup || end.subtype != c.event || end.reason != c.reason {
			t.Errorf("%s: %s for %q, want %s for %q", name, end.subtype, end.reason, c.event, c.reason)
		}
	}
	for policy, want := range map[retrypolicy.Exhaustion]receipts.Subtype{retrypolicy.Discard: receipts.Discarded, retrypolicy.DeadLetter: receipts.DeadLettered} {
		if end := expiryEnding(&Run{Policy: retrypolicy.Policy{OnExhaustion: policy}}); end.subtype != want || end.reason != ReasonExpired || end.charge != ChargeNothing {
			t.Errorf("%s: %+v", policy, end)
		}
	}
}

func TestTheEndOfALeaseIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	slow := retrypolicy.Policy{BaseDelay: time.Minute, MaxDelay: time.Hour}
	for name, c := range map[string]struct {
		run   Run
		cause lease.End
		event receipts.Subtype
		next  time.Time
	}{
		"the next attempt may start at once":      {Run{Policy: slow}, lease.Expired, receipts.RetryScheduled, noon},
		"the next attempt waits after a time-out": {Run{Policy: slow}, lease.OverLimit, receipts.RetryScheduled, noon.Add(time.Minute)},
		"the last one ends the run":               {Run{Policy: slow, BudgetSpent: 2}, lease.Expired, receipts.DeadLettered, time.Time{}},
		"and so after a time-out":                 {Run{Policy: slow, BudgetSpent: 2}, lease.OverLimit, receipts.DeadLettered, time.Time{}},
	} {
		end := leaseEnding(&c.run, c.cause, 5, noon)
		if end.subtype != c.event || !end.next.Equal(c.next) || end.charge != ChargeAttempt || end.result.Failure.Type != string(c.cause) || end.result.Class != Unknown {
			t.Errorf("%s: %+v", name, end)
		}
	}
	if end := handBackEnding(&Run{Policy: slow, BudgetSpent: 2}, &Result{Class: NotExecuted}, noon); end.subtype != receipts.AttemptInterrupted || end.charge != ChargeNothing || !end.handedBack || !end.next.Equal(noon) {
		t.Errorf("%+v", end)
	}
	if end := handBackEnding(&Run{CancelRequested: true}, &Result{Class: NotExecuted}, noon); end.subtype != receipts.Cancelled {
		t.Errorf("%+v", end)
	}
}

// The worker of a lease that ended may have paid, or may yet.
func TestTheEndOfALeaseOfMoneyIsALostWorker(t *testing.T) {
	t.Parallel()
	money := Run{Remote: true, Operation: [32]byte{1}}
	with := func(change func(*Run)) Run {
		r := money
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		run    Run
		event  receipts.Subtype
		charge BudgetCharge
		reason string
	}{
		"the run waits":                      {money, receipts.AttemptInterrupted, ChargeRecovery, ""},
		"the attempt budget is apart":        {with(func(r *Run) { r.BudgetSpent = 2 }), receipts.AttemptInterrupted, ChargeRecovery, ""},
		"the recovery budget is spent":       {with(func(r *Run) { r.Recoveries = 5 }), receipts.DeadLettered, ChargeNothing, ReasonPoisonPill},
		"no further call may be outstanding": {with(func(r *Run) { r.OutstandingCalls = make([]int, MaxOutstandingCalls-1) }), receipts.DeadLettered, ChargeNothing, ReasonPoisonPill},
		"a cancel can't be granted":          {with(func(r *Run) { r.CancelRequested = true }), receipts.AttemptInterrupted, ChargeRecovery, ""},
		"an earlier attempt has paid":        {with(func(r *Run) { r.Class = Executed }), receipts.AttemptSucceeded, ChargeNothing, ""},
		"nothing is discarded by order":      {with(func(r *Run) { r.Policy.OnExhaustion = retrypolicy.Discard; r.Recoveries = 5 }), receipts.DeadLettered, ChargeNothing, ReasonPoisonPill},
	} {
		for _, cause := range []lease.End{lease.Expired, lease.OverLimit} {
			end := leaseEnding(&c.run, cause, 5, noon)
			paid := c.event == receipts.AttemptSucceeded
			overLimit := end.result.Failure.Message == "no answer within the time limit"
			if end.subtype != c.event || end.charge != c.charge || end.reason != c.reason || end.result.Class != Unknown || end.outstanding == paid || overLimit != (cause == lease.OverLimit) {
				t.Errorf("%s, %s: %+v", name, cause, end)
			}
		}
	}
}

// What a remote worker could not say, nobody can look up.
func TestARemoteAttemptOfUnknownOutcomeNeedsNoLookup(t *testing.T) {
	t.Parallel()
	res := Result{Class: Unknown, Failure: failure}
	for retry, want := range map[bool]receipts.Subtype{true: receipts.RetryScheduled, false: receipts.DeadLettered} {
		res.Retry = retry
		end, needsLookup := decide(&Run{Remote: true, Operation: [32]byte{1}}, &res, nil, noon)
		if end.subtype != want || needsLookup || end.lookup != NoClass {
			t.Errorf("%v: %+v, %v", retry, end, needsLookup)
		}
	}
	if end := handBackEnding(&Run{Remote: true, Operation: [32]byte{1}, Class: Unknown, CancelRequested: true}, &Result{Class: NotExecuted}, noon); end.subtype != receipts.AttemptInterrupted {
		t.Errorf("cancelled although an earlier attempt may have paid: %+v", end)
	}
}

// A cancel that was asked for is made when the worker is lost, unless money may have moved.
func TestTheLossOfAWorkerHonoursACancel(t *testing.T) {
	t.Parallel()
	o := &recoverer{m: &Manager{recorder: &recorder{newID: uuid.New, now: func() time.Time { return noon }}}}
	o.m.cfg.MaxRecoveries = 1
	for name, c := range map[string]struct {
		run  Run
		want receipts.Subtype
	}{
		"asked for":                   {Run{CancelRequested: true, CancelBy: "user:ada"}, receipts.Cancelled},
		"asked for, the last loss":    {Run{CancelRequested: true, CancelBy: "user:ada", Recoveries: 1}, receipts.Cancelled},
		"asked for, and it may pay":   {Run{CancelRequested: true, Operation: [32]byte{1}}, receipts.AttemptInterrupted},
		"not asked for":               {Run{}, receipts.AttemptInterrupted},
		"not asked for, the last one": {Run{Recoveries: 1}, receipts.DeadLettered},
	} {
		tr := o.lostTransition(Session{}, &c.run, Result{Class: Unknown})
		if tr.Subtype != c.want || c.want == receipts.Cancelled && (tr.Actor != "user:ada" || tr.Charge != ChargeNothing) {
			t.Errorf("%s: %+v", name, tr)
		}
	}
}

// What an interrupted attempt paid is kept, and a cancel is granted only where nothing can have been paid.
func TestAnInterruptedAttemptEndsByWhatItProves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run  Run
		res  Result
		want receipts.Subtype
	}{
		"paid":                          {Run{}, paid, receipts.AttemptSucceeded},
		"paid, and asked to cancel":     {Run{CancelRequested: true}, paid, receipts.AttemptSucceeded},
		"not sent":                      {Run{}, refused, receipts.AttemptInterrupted},
		"not sent, and asked to cancel": {Run{CancelRequested: true}, refused, receipts.Cancelled},
		"unknown, and asked to cancel":  {Run{CancelRequested: true}, vague, receipts.AttemptInterrupted},
		"not sent after an unknown":     {Run{CancelRequested: true, Class: Unknown, UnknownOpen: 1}, refused, receipts.AttemptInterrupted},
	} {
		c.run.Operation = [32]byte{1}
		if end := interruptedEnding(&c.run, &c.res, noon); end.subtype != c.want || end.charge != ChargeNothing || !cmp.Equal(end.result, c.res) {
			t.Errorf("%s: %+v", name, end)
		}
	}
}

// The called service's word that a lost worker paid ends the run. Its word that nothing was paid proves nothing: the
// call may be on its way.
func TestTheLossOfAWorkerEndsByWhatALookupProves(t *testing.T) {
	t.Parallel()
	o := &recoverer{m: &Manager{recorder: &recorder{newID: uuid.New, now: func() time.Time { return noon }}}}
	o.m.cfg.MaxRecoveries = 1
	run := Run{Operation: [32]byte{1}, Recoveries: 1}
	tr := o.lostTransition(Session{}, &run, paid)
	if tr.Subtype != receipts.AttemptSucceeded || tr.Lookup != Executed || tr.Result.Moved != paid.Moved || tr.Result.Reference != paid.Reference || tr.Charge != ChargeNothing {
		t.Errorf("paid: %+v", tr)
	}
	for _, lookup := range []Result{refused, vague} {
		if tr := o.lostTransition(Session{}, &run, lookup); tr.Subtype != receipts.DeadLettered || tr.Lookup != NoClass || tr.Result.Class != Unknown || !tr.LeavesCallOutstanding {
			t.Errorf("%s: %+v", lookup.Class, tr)
		}
	}
}

func TestNormalizeResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want Result }{
		"zero result":              {Result{}, Result{Class: Unknown, Retry: true, Failure: &Failure{Type: FailureUnspecified}}},
		"invalid class":            {Result{Class: "maybe", Failure: failure}, Result{Class: Unknown, Retry: true, Failure: failure}},
		"unknown, and final":       {finalUnknown, finalUnknown},
		"refusal without a reason": {Result{Class: NotExecuted}, Result{Class: NotExecuted, Failure: &Failure{Type: FailureUnspecified}}},
		"success with a failure": {Result{Class: Executed, Retry: true, RetryAfter: 1, Moved: 7, Reference: "ref", Failure: failure},
			paid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, normalizeResult(c.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A call that was cut short keeps what it proves: that it paid, or that nothing was executed.
func TestACallThatWasCutShortKeepsWhatItProves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result      Result
		class       Class
		failure     string
		interrupted bool
	}{
		"paid":                {Result{Class: Executed}, Executed, "", false},
		"refused for good":    {Result{Class: NotExecuted, Failure: &Failure{Type: "http"}}, NotExecuted, "http", false},
		"refused for a while": {Result{Class: NotExecuted, Retry: true, Failure: &Failure{Type: "http"}}, NotExecuted, "http", true},
		"it is not known":     {Result{Class: Unknown, Failure: &Failure{Type: "http"}}, Unknown, FailureInterrupted, true},
		"it panicked":         {Result{Class: Unknown, Failure: &Failure{Type: FailurePanic}}, Unknown, FailurePanic, true},
	} {
		done := callOutcome{result: c.result}
		done.markInterrupted()
		if f := done.result.Failure; done.result.Class != c.class || done.interrupted != c.interrupted || (f == nil) != (c.failure == "") || f != nil && f.Type != c.failure {
			t.Errorf("%s: %+v", name, done)
		}
	}
}

// attempted returns a run of money that is being attempted.
func attempted() Run {
	run := runIn(Running)
	run.ID, run.Family, run.Tenant, run.OutstandingCalls = RunID(uuid.New()), "pay", "acme", nil
	return run
}

// If another process ended the attempt meanwhile, a payment and a refusal are facts to record. An answer that proves
// nothing is not.
func TestTheResultOfAnAttemptThatEndedElsewhereIsNotLost(t *testing.T) {
	t.Parallel()
	none := []receipts.Subtype(nil)
	late := []receipts.Subtype{receipts.AnsweredLate}
	for name, c := range map[string]struct {
		done callOutcome
		want []receipts.Subtype
	}{
		"paid":                       {callOutcome{result: paid}, append(late, receipts.Reconciled)},
		"refused":                    {callOutcome{result: refused}, late},
		"unknown":                    {callOutcome{result: vague}, none},
		"interrupted":                {callOutcome{result: refused, interrupted: true}, none},
		"interrupted before sending": {callOutcome{result: unsentResult("too old"), interrupted: true}, late},
		"still unanswered":           {callOutcome{result: refused, lateAnswer: make(chan Result)}, none},
	} {
		run := attempted()
		elsewhere := run
		elsewhere.State, elsewhere.OutstandingCalls, elsewhere.Class, elsewhere.UnknownOpen = Scheduled, []int{run.Attempt}, Unknown, 1
		m, j := unconnected(t, elsewhere)
		after, err := m.recorder.finish(j, &run, &c.done)
		if got := j.subtypes(m); !errors.Is(err, errEndedElsewhere) || after.State != Scheduled || !slices.Equal(got, c.want) {
			t.Errorf("%s: %s, %v, recorded %v", name, after.State, err, got)
		}
		for _, tr := range j.recorded {
			if c.done.result.Class == Executed && (tr.Result.Moved != paid.Moved || tr.Result.Reference != paid.Reference) {
				t.Errorf("%s: %s states %+v", name, tr.Subtype, tr.Result)
			}
		}
	}
}

// A delivery that waits for the next attempt of a run reads it again if a late answer ended it.
func TestALateAnswerThatEndsTheRunWakesItsDelivery(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer Result
		wakes  bool
	}{"paid": {paid, true}, "refused": {refused, false}} {
		run := attempted()
		waiting := run
		waiting.State, waiting.OutstandingCalls = Scheduled, []int{run.Attempt}
		m, j := unconnected(t, waiting)
		inFlight, _ := m.inFlight.acquire(run.ID, 1)
		answer := make(chan Result, 1)
		answer <- c.answer
		m.recorder.awaitLateAnswer(j, run, answer, func() {})
		if j.subtypes(m); len(inFlight.wake) > 0 != c.wakes {
			t.Errorf("%s: woken %v", name, !c.wakes)
		}
	}
}

// What the journal refuses did not happen, whatever the run was changed by last.
func TestARefusedTransitionIsNotReported(t *testing.T) {
	t.Parallel()
	for cause, want := range map[error]int{ErrConflict: 0, ErrKeyExpired: 0, ErrDeadLettered: 1, nil: 1} {
		run, reported := attempted(), 0
		m, j := unconnected(t, run, func(c *Config) { c.OnTransition = func(Transition, Run) { reported++ } })
		tr := m.recorder.newTransition(receipts.AttemptSucceeded, &run)
		tr.Result = paid
		run.LastTransition = tr.ID
		j.runs[run.ID] = run
		j.refuse = func(Transition) error { return cause }
		if _, err := m.recorder.write(j, &tr); !errors.Is(err, cause) || reported != want {
			t.Errorf("%v: %v, reported %d times", cause, err, reported)
		}
	}
}
