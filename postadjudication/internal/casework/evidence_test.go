package casework

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

var errUnread = errors.New("the receipts can't be read")

// mayPay is evidence of a call that may pay; one that is out, or one that was abandoned.
func mayPay(out bool) lookupEvidence {
	if out {
		return lookupEvidence{outstanding: true}
	}
	return lookupEvidence{inFlight: time.Minute}
}

// A fork keeps its key only while a call of another run under the same key may pay.
func TestWhichCallsOfOtherRunsMayPay(t *testing.T) {
	t.Parallel()
	mine := background.Run{ID: runID('a'), Operation: [32]byte{1}, OutstandingCalls: []int{1}}
	other := background.Run{ID: runID('b'), Operation: [32]byte{1}, OutstandingCalls: []int{1}}
	back, elsewhere := other, other
	back.OutstandingCalls, elsewhere.Operation = nil, [32]byte{2}
	for name, c := range map[string]struct {
		other    background.Run
		evidence lookupEvidence
		unread   error
		want     bool
	}{
		"it is out":            {other, mayPay(true), nil, true},
		"it was abandoned":     {other, mayPay(false), nil, true},
		"it is over":           {other, lookupEvidence{}, nil, false},
		"it can't be read":     {other, lookupEvidence{}, errUnread, false},
		"it is back":           {back, mayPay(true), nil, false},
		"it has another key":   {elsewhere, mayPay(true), nil, false},
		"it is the run's own":  {mine, mayPay(true), nil, false},
		"back, and not read":   {back, lookupEvidence{}, errUnread, false},
		"another key, unread":  {elsewhere, lookupEvidence{}, errUnread, false},
		"own call, not read":   {mine, lookupEvidence{}, errUnread, false},
		"abandoned, key of it": {other, lookupEvidence{lostCall: true, maxSendDelay: time.Second}, nil, true},
	} {
		got, err := othersMayPay(mine, []journal.Snapshot{{Run: mine}, {Run: c.other}}, func() (lookupEvidence, error) { return c.evidence, c.unread })
		asked := c.other.ID != mine.ID && c.other.Operation == mine.Operation && len(c.other.OutstandingCalls) > 0
		if got != c.want || (err != nil) != (asked && c.unread != nil) {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
	for r, want := range map[*background.Run]bool{{}: true, {UnknownOpen: 1}: false, {OutstandingCalls: []int{1}, Attempt: 1}: false, {UnknownOpen: 1, OutstandingCalls: []int{1}}: false} {
		if everyCallWasRefused(r) != want {
			t.Errorf("%d unknown, calls %v: refused %t", r.UnknownOpen, r.OutstandingCalls, !want)
		}
	}
}

// A reservation is freed only if every run of the case has ended and no call of any may pay.
func TestNothingIsFreedThatMayBePaid(t *testing.T) {
	t.Parallel()
	dead, live := background.Run{State: background.DeadLettered}, background.Run{State: background.Scheduled}
	for name, c := range map[string]struct {
		second background.Run
		why    string
		err    error
		want   refusal.Gate
	}{
		"all ended":        {dead, "", nil, ""},
		"one lives":        {live, "", nil, refusal.GateLive},
		"a call may pay":   {dead, "it may pay", nil, refusal.GateCallOutstanding},
		"it can't be read": {dead, "", errUnread, ""},
	} {
		second := false
		got, err := freeGateOf([]journal.Snapshot{{Run: dead}, {Run: c.second}}, func(background.Run) (string, error) {
			if !second {
				second = true
				return "", nil
			}
			return c.why, c.err
		})
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// What the runs and receipts of a case say of the calls under a key.
func TestWhatIsKnownOfTheCallsUnderAKey(t *testing.T) {
	t.Parallel()
	alone := begin(t)
	alone.f.Now = func() time.Time { return alone.at.Add(time.Hour) }
	running := alone.copied().play(claim('a'))
	abandoned := running.copied()
	r := abandoned.runs['a']
	r.OutstandingCalls = []int{1}
	abandoned.runs['a'] = r
	out := running.copied().play(timedOut('a'))
	forked := running.copied().play(dies('a', escrow.Unknown)).forked('b', 'a')
	r = forked.runs['a']
	r.OutstandingCalls = []int{1}
	forked.runs['a'] = r
	newKey := running.copied().play(dies('a', escrow.NotExecuted)).later().forked('b', 'a')
	r = newKey.runs['a']
	r.OutstandingCalls = []int{1}
	newKey.runs['a'] = r
	for name, c := range map[string]struct {
		h                *history
		run              byte
		alive            bool
		outstanding      bool
		asked, lost, now bool // which processes are alive, that one was lost, that a call came back just now
	}{
		"never called":                           {alone, 'a', true, false, false, false, false},
		"running":                                {running, 'a', true, false, false, false, true},
		"running, and its call was abandoned":    {abandoned, 'a', false, true, false, false, true},
		"a call is out, its process alive":       {out, 'a', true, true, true, true, false},
		"a call is out, its process lost":        {out, 'a', false, false, true, true, false},
		"the parent's call, its process alive":   {forked, 'b', true, true, true, true, false},
		"the parent's call, its process lost":    {forked, 'b', false, false, true, true, false},
		"the parent's call is under another key": {newKey, 'b', true, false, false, false, false},
	} {
		var runs []journal.Snapshot
		for _, r := range c.h.runs {
			runs = append(runs, journal.Snapshot{Case: c.h.c, Run: r})
		}
		var asked []string
		anyAlive := func(workers []string) (bool, error) { asked = workers; return c.alive, nil }
		q, err := lookupEvidenceOf(c.h.f, c.h.runs[c.run], runs, c.h.trail, anyAlive)
		if err != nil || q.outstanding != c.outstanding || q.lostCall != c.lost || slices.Contains(asked, "w") != c.asked || (q.sinceLastCall == 0) != c.now {
			t.Errorf("%s: %+v, asked about %q, %v", name, q, asked, err)
		}
		anyAlive = func([]string) (bool, error) { return false, errUnread }
		if _, err := lookupEvidenceOf(c.h.f, c.h.runs[c.run], runs, c.h.trail, anyAlive); errors.Is(err, errUnread) != c.asked {
			t.Errorf("%s, the processes can't be read: %v", name, err)
		}
	}
	ahead := *out.f
	ahead.ClockUnchanged = func() time.Time { return ahead.Now().Add(-time.Second) }
	q, err := lookupEvidenceOf(&ahead, out.runs['a'], []journal.Snapshot{{Case: out.c, Run: out.runs['a']}}, out.trail, func([]string) (bool, error) { return false, nil })
	if err != nil || q.sinceLastCall != time.Second || q.sinceLost != time.Second {
		t.Errorf("a second after the clock was set ahead: %+v, %v", q, err)
	}
	history, err := callHistoryOf(newKey.runs['b'], []journal.Snapshot{{Run: newKey.runs['a']}, {Run: newKey.runs['b']}}, newKey.trail)
	if err != nil || !history.lastEvent.IsZero() || len(history.workers) > 0 {
		t.Errorf("under a new key: %+v, %v", history, err)
	}
}

// askedEscrow answers lookups, and keeps the call of the last.
type askedEscrow struct {
	fixedEscrow
	answer escrow.Answer
	last   *escrow.Call
}

func (e askedEscrow) Lookup(_ context.Context, call escrow.Call) escrow.Answer {
	*e.last = call
	return e.answer
}

// What an answer proves depends on what was read before: without it only a payment is believed.
func TestWhatIsMadeOfAnAnswer(t *testing.T) {
	t.Parallel()
	paid, none := escrow.Answer{Class: escrow.Executed, Moved: 70}, escrow.Answer{Class: escrow.NotExecuted}
	known := lookupEvidence{keyRetention: escrow.Forever, sinceLastCall: time.Hour}
	justBack, out := known, known
	justBack.inFlight, justBack.sinceLastCall, out.outstanding = time.Minute, 3*time.Second, true
	for name, c := range map[string]struct {
		answer         escrow.Answer
		evidence       lookupEvidence
		unread         error
		noCallInFlight bool
		class          escrow.Class
		why            string
		sentAgo        time.Duration
	}{
		"paid":                               {paid, known, nil, false, escrow.Executed, "", time.Hour - time.Second},
		"paid, nothing is read":              {paid, lookupEvidence{}, errUnread, false, escrow.Executed, "", 0},
		"nothing":                            {none, known, nil, false, escrow.NotExecuted, "", time.Hour - time.Second},
		"nothing, nothing is read":           {none, known, errUnread, false, escrow.Unknown, lookupUnsure, 0},
		"nothing, a call is out":             {none, out, nil, false, escrow.Unknown, lookupOutstanding, 0},
		"nothing, a call just came back":     {none, justBack, nil, false, escrow.Unknown, lookupPremature, 2 * time.Second},
		"nothing, known by the own clock":    {none, justBack, nil, true, escrow.NotExecuted, "", 2 * time.Second},
		"nothing, out whatever the own says": {none, out, nil, true, escrow.Unknown, lookupOutstanding, 0},
	} {
		h := begin(t)
		h.f.Now = func() time.Time { return h.at }
		r, call := h.runs['a'], escrow.Call{}
		found := ask(context.Background(), h.f, askedEscrow{answer: c.answer, last: &call}, escrow.Call{}, &r, c.evidence, c.unread, c.noCallInFlight)
		why := ""
		if found.Class == escrow.Unknown {
			why = found.Failure.Type
		}
		if found.Class != c.class || why != c.why || call.SentAgo != c.sentAgo {
			t.Errorf("%s: %+v, %q, sent %v ago", name, found, why, call.SentAgo)
		}
	}
}

// A letter is closed by a payment of what was left only. Another sum is for a person.
func TestAnotherSumThanWasLeft(t *testing.T) {
	t.Parallel()
	left := func(f *journal.LetterRow) { f.Case.State.Moved = 30 }
	for name, c := range map[string]struct {
		letter journal.LetterRow
		class  escrow.Class
		moved  int64
		want   bool
	}{
		"all that was left":  {openLetter(left), escrow.Executed, 70, false},
		"less":               {openLetter(left), escrow.Executed, 69, true},
		"all that was asked": {openLetter(left), escrow.Executed, 100, true},
		"nothing":            {openLetter(left), escrow.NotExecuted, 0, false},
		"it waits":           {openLetter(left, waiting), escrow.Executed, 69, false},
	} {
		if got := isOtherSum(&c.letter.Snapshot, background.Result{Class: c.class, Moved: c.moved}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if FindingGate(escrow.Executed, openLetter(purged).Snapshot) != "" || FindingGate(escrow.NotExecuted, openLetter(purged).Snapshot) == "" ||
		FindingGate(escrow.Executed, openLetter(succeeded).Snapshot) == "" || FindingGate(escrow.NotExecuted, openLetter().Snapshot) != "" {
		t.Error("a payment of a letter that is closed is not taken, or something else is")
	}
}

// A finding of a payment states its sum, and one that nothing was executed states none.
func TestWhichSumsAFindingMayState(t *testing.T) {
	t.Parallel()
	for f, want := range map[Finding]bool{
		{Class: escrow.Executed, Moved: 70}: true, {Class: escrow.Executed}: false, {Class: escrow.Executed, Moved: settlement.MaxMinor + 1}: false,
		{Class: escrow.NotExecuted}: true, {Class: escrow.NotExecuted, Moved: 70}: false, {Class: escrow.Unknown}: false,
	} {
		f.Reason, f.Reference = "seen in the ledger", "ledger"
		if err := f.Validate("ada"); (err == nil) != want {
			t.Errorf("%s, %d: %v", f.Class, f.Moved, err)
		}
	}
}

// What a person or service states later under a key is compared with what is on record: only more of it is a payment.
func TestALowerSumContradictsAPayment(t *testing.T) {
	t.Parallel()
	for moved, want := range map[int64]int{99: 1, 100: 0, 101: 0} {
		tr := background.Transition{Subtype: receipts.AnsweredLate, Run: background.Run{Attempt: 1}, Result: executed(moved, "ref")}
		got := contradictionReceipts(&tr, &background.Run{ID: runID('a')}, binding.Payment{Paid: 100, Reference: "ref", StatedBy: runID('a')})
		if len(got) != want || want > 0 && (got[0].Payload.Moved != moved || got[0].Payload.Recorded != 100) {
			t.Errorf("%d after 100: %+v", moved, got)
		}
	}
}

// The loop asks about a run only as it was listed, and of a page at most.
func TestWhichRunsTheLoopAsksAbout(t *testing.T) {
	t.Parallel()
	h := begin(t)
	h.f.Lookups = LookupRule{Off: true, Every: 1}.WithDefaults()
	log, logged := observer.New(zap.WarnLevel)
	engine := breakerEngine{}
	l := NewLookupLoop(&Applier{Settlements: h.f, Engine: &engine, Log: zap.New(log)}, "w")
	l.Run(context.Background()) // it is off, and returns
	listed := journal.UnknownRun{Run: runID('a'), Attempt: 2}
	for attempt, want := range map[int]bool{1: false, 2: true, 3: false} {
		if l.mayAsk(&background.Run{Attempt: attempt}, listed) != want {
			t.Errorf("listed at attempt 2, now at %d: %t", attempt, !want)
		}
	}
	engine.open = true
	if l.mayAsk(&background.Run{Attempt: 2}, listed) {
		t.Error("its breaker is open")
	}
	var found []journal.UnknownRun
	for i := range lookupPage + 1 {
		found = append(found, journal.UnknownRun{Run: background.RunID(NewID()), Attempt: i})
	}
	now := time.Now()
	if out := l.knownForLong(found, nil, now); len(out) > 0 {
		t.Errorf("%d are known for long at once", len(out))
	}
	found[0].Paused = true
	skipped := map[background.RunID]time.Time{found[1].Run: now}
	if out := l.knownForLong(found[:4], skipped, now.Add(time.Hour)); len(out) != 2 {
		t.Errorf("%d of 2", len(out))
	}
	found[0].Paused = false
	l.knownForLong(found, nil, now)
	if out := l.knownForLong(found, nil, now.Add(time.Hour)); len(out) != lookupPage {
		t.Errorf("%d of a page", len(out))
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	l.tryLookup(ended, listed)
	if logged.Len() > 0 {
		t.Error("the end of the process is logged")
	}
	if l.tryLookup(context.Background(), listed); logged.Len() != 1 {
		t.Errorf("a lookup that failed is logged %d times", logged.Len())
	}
	for err, want := range map[error]bool{refusal.ErrNotFound: true, ErrLetterChanged: true, background.ErrConflict: true, errUnread: false} {
		if isOfChange(err) != want {
			t.Errorf("%v: %t", err, !want)
		}
	}
}

// breakerEngine is an Engine of which only the breaker is asked.
type breakerEngine struct {
	Engine
	open bool
}

func (e *breakerEngine) BreakerOpen(background.Run) bool { return e.open }

// A process serves if it is not lost and had a heartbeat of late.
func TestWhichProcessesRun(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	all := []background.Session{{Worker: "runs", BeatAt: now}, {Worker: "silent", BeatAt: now.Add(-1)}, {Worker: "lost", BeatAt: now, Lost: true}}
	if got := beating(all, now); len(got) != 1 || got[0].Worker != "runs" {
		t.Errorf("%+v", got)
	}
}

// Tampering is recorded for the delivery in which it was seen, and the death of a letter names its handler.
func TestWhatIsRecordedOfADelivery(t *testing.T) {
	t.Parallel()
	expected := background.Run{State: background.Scheduled, Attempt: 1, NotificationNumber: 2}
	for name, c := range map[string]struct {
		change func(*background.Run)
		want   bool
	}{
		"the same":          {func(*background.Run) {}, true},
		"it runs":           {func(r *background.Run) { r.State = background.Running }, false},
		"another attempt":   {func(r *background.Run) { r.Attempt = 2 }, false},
		"another delivery":  {func(r *background.Run) { r.NotificationNumber = 3 }, false},
		"the letter is new": {func(r *background.Run) { r.Letter = background.LetterOpen }, false},
	} {
		now := expected
		if c.change(&now); isSameDelivery(&now, &expected) != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
	h := begin(t)
	s := journal.Snapshot{Case: h.c, Run: h.runs['a']}
	tr := background.Transition{Subtype: receipts.OutOfBandChangeDetected, Run: s.Run, At: h.at, Worker: "w", Reason: "altered"}
	ch, err := tamperingChange(&tr, &s, &s)
	if err != nil || ch.Drafts[0].Payload.ReasonCode != "altered" || ch.After.Case.State != s.Case.State {
		t.Errorf("%+v, %v", ch, err)
	}
	changed := s
	changed.Case.Head.Seq++
	if _, err := tamperingChange(&tr, &changed, &s); !errors.Is(err, errCaseChanged) {
		t.Errorf("the case has changed: %v", err)
	}
	drafts := []receipts.Draft{{Run: runID('a'), Subtype: receipts.DeadLettered}, {Run: runID('a'), Subtype: receipts.ConservationBreach}, {Run: runID('b'), Subtype: receipts.DeadLettered}}
	nameHandler(drafts, runID('a'), runID('h'))
	if drafts[0].Payload.NewRun != runID('h') || !drafts[1].Payload.NewRun.IsZero() || !drafts[2].Payload.NewRun.IsZero() {
		t.Errorf("%+v", drafts)
	}
}

// keptFiles is an archive that keeps which of its files are left.
type keptFiles struct{ left bool }

func (k *keptFiles) Put(context.Context, []journal.LetterRow, time.Time) (string, string, error) {
	k.left = true
	return "file", "digest", nil
}
func (k *keptFiles) Remove(context.Context, string) { k.left = false }

func (e *breakerEngine) RemoveArchivedTasks(context.Context, []background.Run) error { return nil }

// The archived copy of a letter is removed only if it is certain that the letter was not purged.
func TestAnArchivedLetterIsNotRemoved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		written []bool
		err     error
		left    bool
	}{
		"purged":          {[]bool{true}, nil, true},
		"one of two":      {[]bool{false, true}, nil, true},
		"not purged":      {[]bool{false}, nil, false},
		"it is not known": {nil, errors.New("the connection is lost"), true},
	} {
		files := &keptFiles{}
		changes := make([]journal.Change, 2)
		for i := range changes {
			changes[i] = journal.Change{After: &journal.Snapshot{}, Drafts: make([]receipts.Draft, 1)}
		}
		m := (&Applier{Archive: files, Engine: &breakerEngine{}, Log: zap.NewNop()}).Archiving(time.Time{}, Batch{})
		_, err := m.Around(context.Background(), nil, changes, func() ([]bool, error) { return c.written, c.err })
		if !errors.Is(err, c.err) || files.left != c.left || changes[0].Drafts[0].Payload.Archive != "file" {
			t.Errorf("%s: left %t, %v", name, files.left, err)
		}
	}
}

// Where there is one operation key, no other can have moved money, and no other run is read to know it.
func TestWhatNeedsNoOtherRun(t *testing.T) {
	t.Parallel()
	s := &journal.Snapshot{Case: journal.Case{State: settlement.State{Generation: 1}}, Run: background.Run{UnknownOpen: 1}}
	for name, runs := range map[string]*caseRuns{"not read": nil, "unclear receipts": {unclear: true}} {
		if beside, err := runs.unknownBeside(s); beside || err != nil {
			t.Errorf("%s: %t, %v", name, beside, err)
		}
	}
	s.Case.State.Generation, s.Run.UnknownOpen = 2, 0
	if beside, err := (&caseRuns{unclear: true}).unknownBeside(s); beside || err != nil {
		t.Errorf("no outcome is unknown: %t, %v", beside, err)
	}
	s.Run.Parent, s.Run.Class, s.Run.State, s.Case.State.Moved = runID('a'), escrow.Executed, background.Running, 100
	paid := retry('b', escrow.NotExecuted).Transition
	if err := onExecuted(&paid, s, nil); err != nil || paid.Subtype != receipts.AttemptSucceeded {
		t.Errorf("a run that is known to have paid: %s, %v", paid.Subtype, err)
	}
	h := begin(t).play(claim('a'), dies('a', escrow.NotExecuted)).forked('b', 'a').play(claim('b'))
	tr := retry('b', escrow.NotExecuted).Transition
	tr.Run, tr.At = h.runs['b'], h.at
	if _, err := h.f.changeOf(&tr, &journal.Snapshot{Case: h.c, Run: h.runs['b']}, nil); err != nil {
		t.Errorf("a fork fails where nothing has moved: %v", err)
	}
}
