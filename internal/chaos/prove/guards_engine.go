package prove

// engine is what guards the runs: claims, attempts, what is known of the money.
var engine = []Guard{
	{
		Name:  "no attempt starts before its time",
		Edits: []Edit{{"background/transition.go", "case now.DueAt.After(m.At):", "case false:"}},
		By:    Catch{Package: "./background", Test: "TestApplyGuards"},
	},
	{
		Name: "an attempt is ended by who holds its token",
		Edits: []Edit{{"background/transition.go",
			"now.State != Running || now.Attempt != m.Run.Attempt || now.Token != m.Run.Token ||", "now.State != Running ||"}},
		By: Catch{Package: "./background", Test: "TestApplyGuards"},
	},
	{
		Name:  "a run of unknown outcome is not cancelled",
		Edits: []Edit{{"background/transition.go", "if now.MovesMoney() && (now.Class == Unknown || now.UnknownOpen > 0) {", "if false {"}},
		By:    Catch{Package: "./postadjudication", Test: "TestCancelOfAnUnknownOutcomeIsRefused"},
	},
	{
		Name: "a later refusal does not clear an unknown, of this run or of another of its case",
		Edits: []Edit{
			{"background/transition.go", "case class == NotExecuted && now.Class != Unknown && m.Fact != receipts.AnsweredLate:", "case class == NotExecuted && m.Fact != receipts.AnsweredLate:"},
			{"background/transition.go", "if now.Class = NotExecuted; now.MovesMoney() && now.UnknownOpen > 0 {", "if now.Class = NotExecuted; false {"},
		},
		Double: "the class of a run is the worst of its case",
		By:     Catch{Package: "./postadjudication", Test: "TestPaidButLostAnswerFollowedByARefusalStaysUnknown"},
	},
	{
		Name:  "what is executed stays so, whatever a later call tells",
		Edits: []Edit{{"background/transition.go", "	case now.Class == Executed:\n	case class == Executed", "	case class == Executed"}},
		By:    Catch{Package: "./background", Test: "TestWhatIsKnownOfTheMoney"},
	},
	{
		Name:  "a run of which many calls are out is not called again",
		Edits: []Edit{{"background/transition.go", "case len(now.OutstandingCalls) >= MaxOutstandingCalls:", "case false:"}},
		By:    Catch{Package: "./background", Test: "TestARunWithTooManyCallsOutIsNotClaimed"},
	},
	{
		Name:  "an answer is of its own attempt, once",
		Edits: []Edit{{"background/transition.go", "!awaited && (!news || now.Class == Executed) {", "!awaited && (!news || now.Class == Executed) && false {"}},
		By:    Catch{Package: "./background", Test: "TestACallIsOutstandingUntilItsOwnAnswer"},
	},
	{
		Name:  "a run that can't be read, or an outcome that can't be written, is no outage",
		Edits: []Edit{{"background/record.go", "		ErrUnreadable, ErrUnrecordable,\n", ""}},
		By:    Catch{Package: "./postadjudication", Test: "TestAWorkerThatCanNotReadARunCarriesAllOthers"},
	},
	{
		Name: "a panic is an unknown outcome",
		Edits: []Edit{{"background/attempt.go", "			res = unknown(FailurePanic, fmt.Sprint(p))\n",
			"			res = unknown(FailurePanic, fmt.Sprint(p))\n			res.Class = NotExecuted\n"}},
		By: Catch{Package: "./postadjudication", Test: "TestPanicIsAnAttemptOfUnknownOutcome"},
	},
	{
		Name:  "the other side is asked before a letter of unknown outcome is opened",
		Edits: []Edit{{"background/decide.go", "	case looked == nil:\n		return ending{}, true\n", "	case looked == nil:\n		return death, false\n"}},
		By:    Catch{Package: "./background", Test: "TestUnknownIsLookedUpBeforeItsLetterIsOpened"},
	},
	{
		Name:  "a task that kills its workers ends",
		Edits: []Edit{{"background/observer.go", "case r.Recoveries+1 > o.m.cfg.Recoveries:", "case false:"}},
		By:    Catch{Package: "./background", Test: "TestAPoisonPillEndsAsADeadLetter"},
	},
	{
		Name:  "a cancel that was asked for is not honoured when it may have been paid",
		Edits: []Edit{{"background/decide.go", "	case run.CancelAsked && nothingPaid:\n", "	case run.CancelAsked:\n"}},
		By:    Catch{Package: "./background", Test: "TestCancelAskedWhileRunningIsNotHonouredWhenItMayHavePaid"},
	},
	{
		Name:  "a budget is what the policy says",
		Edits: []Edit{{"background/decide.go", "BudgetSpent: run.BudgetSpent + 1,", "BudgetSpent: run.BudgetSpent,"}},
		By:    Catch{Package: "./background", Test: "TestThreeFailuresMakeADeadLetterMirroredWithTheTypeOfItsLastError"},
	},
	{
		Name:  "nobody calls on a claim that grew old",
		Edits: []Edit{{"background/fresh.go", "age >= bound {", "age >= bound && false {"}},
		By:    Catch{Package: "./internal/chaos", Test: "TestAWorkerThatWakesPaysNothingWhenTheOppositeWasPaid"},
	},
	{
		Name:  "the age of a claim counts from when it was sent",
		Edits: []Edit{{"background/fresh.go", "age := f.claim.sent.until(f.m.clocks())", "age := f.m.clocks().until(f.m.clocks())"}},
		By:    Catch{Package: "./background", Test: "TestAClaimThatGrewOldIsNotCalledOn"},
	},
	{
		Name:  "the last byte waits for the age of the claim to be looked at",
		Edits: []Edit{{"postadjudication/escrowhttp/lastbyte.go", "	if b.fresh != nil {", "	if false {"}},
		By:    Catch{Package: "./postadjudication/escrowhttp", Test: "TestTheLastByteLeavesOnlyWhileTheClaimIsFresh"},
	},
	{
		Name:  "an answer is that of its own attempt",
		Edits: []Edit{{"background/transition.go", "back, awaited := now.withCallBack(m.Run.Attempt)", "back, awaited := now.withCallBack(m.Run.Attempt % 63)"}},
		By:    Catch{Package: "./postadjudication", Test: "TestCallsOfAttemptsFarApartAreToldFromEachOther"},
	},
	{
		Name:  "that a call paid is recorded, whoever awaits it",
		Edits: []Edit{{"background/transition.go", "!awaited && (!news || now.Class == Executed)", "!awaited && (!news || true)"}},
		By:    Catch{Package: "./background", Test: "TestAnAnswerThatNobodyAwaitsIsAFactIfItPaid"},
	},
	{
		Name:  "a run that can't be read is an answer, and stops nobody else",
		Edits: []Edit{{"background/record.go", "ErrUnreadable, ErrUnrecordable,\n", "ErrUnrecordable,\n"}},
		By:    Catch{Package: "./postadjudication", Test: "TestAWorkerThatCanNotReadARunCarriesAllOthers"},
	},
	{
		Name:  "what can't be written for its values is an answer, and left to a person",
		Edits: []Edit{{"background/record.go", "ErrUnreadable, ErrUnrecordable,\n", "ErrUnreadable,\n"}},
		By:    Catch{Package: "./postadjudication", Test: "TestAPaymentThatCanNotBeSummedIsLeftToAPerson"},
	},
	{
		Name:  "the age of a claim is looked at before the handler is called",
		Edits: []Edit{{"background/attempt.go", "if err := fresh.check(); err != nil {", "if err := fresh.check(); err != nil && run.ID.IsZero() {"}},
		By:    Catch{Package: "./background", Test: "TestAClaimThatGrewOldIsNotCalledOn"},
	},
	{
		Name:  "an attempt that has ended lets nothing leave",
		Edits: []Edit{{"background/fresh.go", "	if f.ctx.Err() != nil {", "	if false {"}},
		By:    Catch{Package: "./background", Test: "TestAnAttemptThatHasEndedLetsNothingLeave"},
	},
	{
		Name:  "nothing is claimed for a while after a claim grew old",
		Edits: []Edit{{"background/slots.go", "case m.pausing.remaining() > 0:", "case false:"}},
		By:    Catch{Package: "./background", Test: "TestAProcessWhoseClaimsGrowOldPausesItsClaims"},
	},
	{
		Name:  "the last byte of a request waits to be let go",
		Edits: []Edit{{"postadjudication/escrowhttp/lastbyte.go", "	case !b.let:", "	case false:"}},
		By:    Catch{Package: "./postadjudication/escrowhttp", Test: "TestTheLastByteLeavesOnlyWhileTheClaimIsFresh"},
	},
	{
		Name:  "nothing leaves after the call has ended",
		Edits: []Edit{{"postadjudication/escrowhttp/lastbyte.go", "	case b.ended && !b.let:", "	case false:"}, {"postadjudication/escrowhttp/lastbyte.go", "	case b.ended:", "	case false:"}},
		By:    Catch{Package: "./postadjudication/escrowhttp", Test: "TestNothingLeavesAfterTheCall"},
	},
	{
		Name:  "a machine whose clock alone is off claims nothing",
		Edits: []Edit{{"background/slots.go", "case m.clock.err() != nil:", "case false:"}},
		By:    Catch{Package: "./background", Test: "TestAProcessWhoseClockAloneIsOffClaimsNothing"},
	},
	{
		Name:  "nobody is accused of removing the task of a run that another process paused",
		Edits: []Edit{{"background/breakers.go", "return last.After(b.m.now().Add(-within))", "return false && last.IsZero()"}},
		By:    Catch{Package: "./background", Test: "TestAPausedRunsTaskIsNotMissed"},
	},
	{
		Name:  "a request to cancel leaves its receipt with its mark, or neither",
		Edits: []Edit{{"internal/postgres/cancel.go", "return errNotAsked", "return nil"}},
		By:    Catch{Package: "./postadjudication", Test: "TestARequestToCancelThatComesTooLateLeavesNothing"},
	},
	{
		Name:  "a clock that most do not share is refused",
		Edits: []Edit{{"background/clockjudge.go", "|| 2*shared >= len(others)", "|| shared >= 0"}},
		By:    Catch{Package: "./background", Test: "TestWhatTimeItIsByTheDatabasesClock"},
	},
	{
		Name:  "another server's clock is gone by once three readings agree",
		Edits: []Edit{{"background/clockjudge.go", "len(j.changed) >= clockAgree", "len(j.changed) >= 1"}},
		By:    Catch{Package: "./background", Test: "TestWhatTimeItIsByTheDatabasesClock"},
	},
	{
		Name:  "a session under which somebody has just claimed is not forgotten",
		Edits: []Edit{{"internal/postgres/sessions.go", "WHERE id = $1 FOR UPDATE", "WHERE id = $1"}},
		By:    Catch{Package: "./internal/postgres", Test: "TestASessionThatHasJustClaimedIsNotForgotten"},
	},
	{
		Name:  "an open circuit breaker is led by a process that calls its target",
		Edits: []Edit{{"background/breakerloop.go", "(f == nil || !k.m.calls(b.Target))", "f == nil"}},
		By:    Catch{Package: "./postadjudication", Test: "TestABreakerIsLedByAProcessThatCallsItsTarget"},
	},
	{
		Name:  "what is found says nothing of a call made since",
		Edits: []Edit{{"background/transition.go", "&& now.Letter != LetterOpen && !late || now.Attempt != m.Run.Attempt {", "&& now.Letter != LetterOpen && !late {"}},
		By:    Catch{Package: "./background", Test: "TestApplyGuards"},
	},
}
