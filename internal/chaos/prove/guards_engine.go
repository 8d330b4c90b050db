package prove

// engineGuards is what guards the runs: claims, attempts, what is known of the money.
var engineGuards = []Guard{
	{
		Name:     "no attempt starts before its time",
		Edits:    []Edit{{"background/transition.go", "case now.DueAt.After(tr.At):", "case false:"}},
		CaughtBy: Detector{Package: "./background", Test: "TestApplyGuards"},
	},
	{
		Name: "only the holder of its token ends an attempt",
		Edits: []Edit{{"background/transition.go",
			"now.State != Running || now.Attempt != tr.Run.Attempt || now.Token != tr.Run.Token ||", "now.State != Running ||"}},
		CaughtBy: Detector{Package: "./background", Test: "TestApplyGuards"},
	},
	{
		Name:     "a run of unknown outcome is not cancelled",
		Edits:    []Edit{{"background/transition.go", "if now.MovesMoney() && (now.Class == Unknown || now.UnknownOpen > 0) {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestCancelOfAnUnknownOutcomeIsRefused"},
	},
	{
		Name: "a later refusal does not clear an unknown, of this run or of another of its case",
		Edits: []Edit{
			{"background/transition.go", "case class == NotExecuted && now.Class != Unknown && tr.Subtype != receipts.AnsweredLate:", "case class == NotExecuted && tr.Subtype != receipts.AnsweredLate:"},
			{"background/transition.go", "if now.Class = NotExecuted; now.MovesMoney() && now.UnknownOpen > 0 {", "if now.Class = NotExecuted; false {"},
		},
		Redundant: "the class of a run is the worst of its case",
		CaughtBy:  Detector{Package: "./postadjudication", Test: "TestPaidButLostAnswerFollowedByARefusalStaysUnknown"},
	},
	{
		Name:     "an executed outcome stays, whatever a later call answers",
		Edits:    []Edit{{"background/transition.go", "	case now.Class == Executed:\n	case class == Executed", "	case class == Executed"}},
		CaughtBy: Detector{Package: "./background", Test: "TestMergeOutcome"},
	},
	{
		Name:     "a finding is executed or not executed, and nothing else",
		Edits:    []Edit{{"background/transition.go", "case tr.Result.Class != Executed && tr.Result.Class != NotExecuted:", "case false:"}},
		CaughtBy: Detector{Package: "./background", Test: "TestAFindingOfAnotherClassIsRefused"},
	},
	{
		Name:     "a run with many outstanding calls is not called again",
		Edits:    []Edit{{"background/transition.go", "case len(now.OutstandingCalls) >= MaxOutstandingCalls:", "case false:"}},
		CaughtBy: Detector{Package: "./background", Test: "TestARunWithTooManyOutstandingCallsIsNotClaimed"},
	},
	{
		Name:     "an answer counts for its own attempt, once",
		Edits:    []Edit{{"background/transition.go", "if !awaited && (!decisive || paid) &&", "if !awaited && false && (!decisive || paid) &&"}},
		CaughtBy: Detector{Package: "./background", Test: "TestACallIsOutstandingUntilItsOwnAnswer"},
	},
	{
		Name:     "a run that can't be read, or an outcome that can't be written, is no outage",
		Edits:    []Edit{{"background/record.go", "		ErrUnreadable, ErrUnrecordable,\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAWorkerThatCanNotReadARunCarriesAllOthers"},
	},
	{
		Name: "a panic is an unknown outcome",
		Edits: []Edit{{"background/handlercall.go", "			res = unknownResult(FailurePanic, fmt.Sprint(p))\n",
			"			res = unknownResult(FailurePanic, fmt.Sprint(p))\n			res.Class = NotExecuted\n"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestPanicIsAnAttemptOfUnknownOutcome"},
	},
	{
		Name:     "a lookup precedes a letter of unknown outcome",
		Edits:    []Edit{{"background/decide.go", "	case lookup == nil:\n		return ending{}, true\n", "	case lookup == nil:\n		return deadLetter, false\n"}},
		CaughtBy: Detector{Package: "./background", Test: "TestUnknownIsLookedUpBeforeItsLetterIsOpened"},
	},
	{
		Name:     "an accepted call says nothing for its target",
		Edits:    []Edit{{"background/breakerregistry.go", " || done.result.Accepted {", " {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAcceptedCallsNeitherOpenABreakerNorKeepItOpen"},
	},
	{
		Name:     "a task that kills its workers ends",
		Edits:    []Edit{{"background/recovery.go", "case r.Recoveries+1 > o.m.cfg.MaxRecoveries || r.lastCallOutstanding():", "case false:"}},
		CaughtBy: Detector{Package: "./background", Test: "TestAPoisonPillEndsAsADeadLetter"},
	},
	{
		Name:     "a cancel that was asked for is not honoured when it may have been paid",
		Edits:    []Edit{{"background/decide.go", "	case run.CancelRequested && unpaid:\n", "	case run.CancelRequested:\n"}},
		CaughtBy: Detector{Package: "./background", Test: "TestCancelAskedWhileRunningIsNotHonouredWhenItMayHavePaid"},
	},
	{
		Name:     "a budget is what the policy says",
		Edits:    []Edit{{"background/decide.go", "BudgetSpent: run.BudgetSpent + 1,", "BudgetSpent: run.BudgetSpent,"}},
		CaughtBy: Detector{Package: "./background", Test: "TestThreeFailuresMakeADeadLetterArchivedWithItsErrorType"},
	},
	{
		Name:  "no call is made under a claim that is too old",
		Edits: []Edit{{"background/handlercall.go", "age >= bound {", "age >= bound && false {"}},
		// A worker that wakes often finds that it was declared lost before it calls.
		CaughtBy: Detector{Package: "./background", Test: "TestAStaleClaimIsNotCalled"},
	},
	{
		Name:     "the age of a claim counts from when it was sent",
		Edits:    []Edit{{"background/handlercall.go", "age := f.claim.sent.until(f.caller.clocks())", "age := f.caller.clocks().until(f.caller.clocks())"}},
		CaughtBy: Detector{Package: "./background", Test: "TestAStaleClaimIsNotCalled"},
	},
	{
		Name:     "the age of the claim is checked before the last byte",
		Edits:    []Edit{{"postadjudication/escrowhttp/gatedbody.go", "	if b.fresh != nil {", "	if false {"}},
		CaughtBy: Detector{Package: "./postadjudication/escrowhttp", Test: "TestTheLastByteLeavesOnlyWhileTheClaimIsFresh"},
	},
	{
		Name:     "an answer is that of its own attempt",
		Edits:    []Edit{{"background/transition.go", "now.removeOutstandingCall(tr.Run.Attempt)", "now.removeOutstandingCall(tr.Run.Attempt % 63)"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestCallsOfAttemptsFarApartAreToldFromEachOther"},
	},
	{
		Name:     "a payment is recorded although its caller has gone",
		Edits:    []Edit{{"background/transition.go", "decisive := tr.Result.Class == Executed || tr.Reason == ReasonUnrecordable", "decisive := false"}},
		CaughtBy: Detector{Package: "./background", Test: "TestALateAnswerThatPaidIsRecordedThoughNobodyAwaitsIt"},
	},
	{
		Name:     "a run that can't be read is an answer, and stops nobody else",
		Edits:    []Edit{{"background/record.go", "ErrUnreadable, ErrUnrecordable,\n", "ErrUnrecordable,\n"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAWorkerThatCanNotReadARunCarriesAllOthers"},
	},
	{
		Name:     "an outcome whose values can't be written is left to a person",
		Edits:    []Edit{{"background/record.go", "ErrUnreadable, ErrUnrecordable,\n", "ErrUnreadable,\n"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAPaymentThatCanNotBeSummedIsLeftToAPerson"},
	},
	{
		Name:     "the age of a claim is checked before the handler is called",
		Edits:    []Edit{{"background/handlercall.go", "if err := fresh.check(); err != nil {", "if err := fresh.check(); err != nil && run.ID.IsZero() {"}},
		CaughtBy: Detector{Package: "./background", Test: "TestAStaleClaimIsNotCalled"},
	},
	{
		Name:     "nothing is sent for an attempt that has ended",
		Edits:    []Edit{{"background/handlercall.go", "	if f.ctx.Err() != nil {", "	if false {"}},
		CaughtBy: Detector{Package: "./background", Test: "TestAnEndedAttemptSendsNothing"},
	},
	{
		Name:     "nothing is claimed for a while after a claim grew old",
		Edits:    []Edit{{"background/claim.go", "case g.claimBackoff.remaining() > 0:", "case false:"}},
		CaughtBy: Detector{Package: "./background", Test: "TestStaleClaimsPauseClaiming"},
	},
	{
		Name:     "the last byte of a request waits for its check",
		Edits:    []Edit{{"postadjudication/escrowhttp/gatedbody.go", "	case !b.released:", "	case false:"}},
		CaughtBy: Detector{Package: "./postadjudication/escrowhttp", Test: "TestTheLastByteLeavesOnlyWhileTheClaimIsFresh"},
	},
	{
		Name:     "nothing is sent after the call has ended",
		Edits:    []Edit{{"postadjudication/escrowhttp/gatedbody.go", "	case b.ended && !b.released:", "	case false:"}, {"postadjudication/escrowhttp/gatedbody.go", "	case b.ended:", "	case false:"}},
		CaughtBy: Detector{Package: "./postadjudication/escrowhttp", Test: "TestNothingLeavesAfterTheCall"},
	},
	{
		Name:     "a machine whose clock alone is off claims nothing",
		Edits:    []Edit{{"background/claim.go", "case g.clock.err() != nil:", "case false:"}},
		CaughtBy: Detector{Package: "./background", Test: "TestAProcessWhoseClockAloneIsOffClaimsNothing"},
	},
	{
		Name:     "the task of a run that another process paused does not count as removed",
		Edits:    []Edit{{"background/breakerregistry.go", "return last.After(b.m.now().Add(-within))", "return false && last.IsZero()"}},
		CaughtBy: Detector{Package: "./background", Test: "TestAPausedRunsTaskIsNotReportedRemoved"},
	},
	{
		Name:     "a cancel request and its receipt are one commit",
		Edits:    []Edit{{"postadjudication/internal/journal/transition.go", "return errCancelNotMarked", "return nil"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestARequestToCancelThatComesTooLateLeavesNothing"},
	},
	{
		Name:     "a clock that differs from most is refused",
		Edits:    []Edit{{"background/clock.go", "|| 2*shared >= len(others)", "|| shared >= 0"}},
		CaughtBy: Detector{Package: "./background", Test: "TestClockFilter"},
	},
	{
		Name:     "another server's clock is used once three readings agree",
		Edits:    []Edit{{"background/clock.go", "len(j.candidates) >= clockAgreements", "len(j.candidates) >= 1"}},
		CaughtBy: Detector{Package: "./background", Test: "TestClockFilter"},
	},
	{
		Name:     "a session with a new claim is not forgotten",
		Edits:    []Edit{{"postadjudication/internal/journal/sessions.go", "WHERE id = $1 FOR UPDATE", "WHERE id = $1"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestASessionThatHasJustClaimedIsNotForgotten"},
	},
	{
		Name: "an open circuit breaker is led by a process that calls its target",
		Edits: []Edit{
			{"background/breakerloop.go", "(f == nil || !k.m.targets.calls(b.Scope))", "f == nil"},
			{"background/breakerleader.go", "return look.leaves, err", "return false, err"},
		},
		Redundant: "a leader that calls none of the waiting runs leaves the circuit breaker",
		CaughtBy:  Detector{Package: "./postadjudication", Test: "TestABreakerIsLedByAProcessThatCallsItsTarget"},
	},
	{
		Name:     "a finding says nothing of a later call",
		Edits:    []Edit{{"background/transition.go", "&& now.Letter != LetterOpen && !late || now.Attempt != tr.Run.Attempt:", "&& now.Letter != LetterOpen && !late:"}},
		CaughtBy: Detector{Package: "./background", Test: "TestApplyGuards"},
	},
	{
		Name:     "a session that beats is not marked as lost",
		Edits:    []Edit{{"postadjudication/internal/journal/sessions.go", "SET lost = true WHERE id = $1 AND beat = $2`", "SET lost = true WHERE id = $1 AND (beat = $2 OR true)`"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestASessionThatBeatsAfterItWasReadIsNotLost"},
	},
}
