package prove

// moneyGuards is what guards decisions about money: when a call may be made again, and under which key.
var moneyGuards = []Guard{
	{
		Name:     "another spelling of an id is no second id, which would be paid a second time",
		Edits:    []Edit{{"postadjudication/internal/validate/id.go", "problem := idProblem(id); problem != \"\" {", "problem := idProblem(id); problem != \"\" && false {"}},
		CaughtBy: Detector{Package: "./internal/app", Test: "TestEveryHTTPDoorRefusesOtherSpellingsOfAnID"},
	},
	{
		Name:     "a sum that can't be recorded contradicts the payment that is on record",
		Edits:    []Edit{{"background/transition.go", "(tr.Result.Class != Unknown || tr.Reason == ReasonUnrecordable)", "tr.Result.Class != Unknown"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestASecondAnswerWithAnotherSumIsOnRecord"},
	},
	{
		Name:     "the answer about one operation key tells nothing of another",
		Edits:    []Edit{{"postadjudication/internal/casework/settlementfamily.go", "if unknownBeside && !coversCase(&tr) {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAPaymentUnderAnOlderKeyThatCanNotBeRecordedEndsTheRunThatWaits"},
	},
	{
		Name:     "no retry and no fork is called while another operation key may have paid",
		Edits:    []Edit{{"postadjudication/internal/casework/caseruns.go", "return a.unclear || a.money.UnknownBeside(s.Run.ID), nil", "return a.unclear || a.money.UnknownBeside(s.Run.ID) && s.Run.Parent.IsZero() && s.Run.Class != escrow.Unknown, nil"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAPaymentUnderAnOlderKeyThatCanNotBeRecordedEndsRetriesAndForks"},
	},
	{
		Name:     "what is on record under a key is not paid again by saying it again",
		Edits:    []Edit{{"settlement/table.go", "		if e.Paid <= e.Recorded {", "		if e.Paid < e.Recorded {"}},
		CaughtBy: Detector{Package: "./settlement", Test: "TestARepeatedPaymentChangesNothing"},
	},
	{
		Name:     "a higher sum under a key pays the difference",
		Edits:    []Edit{{"settlement/table.go", "		e.Paid -= e.Recorded\n", ""}},
		CaughtBy: Detector{Package: "./settlement", Test: "TestAHigherSumUnderAKeyIsAPaymentOfTheDifference"},
	},
	{
		Name:     "an answer that states a lower sum is on record",
		Edits:    []Edit{{"postadjudication/internal/casework/contradictions.go", "if said.Moved > recorded.Paid || said.Moved == recorded.Paid && !otherReference {", "if !otherReference {"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestALowerSumContradictsAPayment"},
	},
	{
		Name:     "a second answer of a remote worker is compared with what is on record",
		Edits:    []Edit{{"background/transition.go", " && !(paid && now.MovesMoney() && (tr.Result.Class != Unknown || tr.Reason == ReasonUnrecordable)) {", " {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestASecondAnswerWithAnotherSumIsOnRecord"},
	},
	{
		Name: "no call after an unknown one past the key's lifetime",
		Edits: []Edit{{"postadjudication/internal/casework/keylifetime.go",
			"case f.keyMayExpire(r, at):", "case false:"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestUnknownIsNotRepeatedPastTheKeyLifetime"},
	},
	{
		Name: "a claim does not end a run that another process executes",
		Edits: []Edit{{"postadjudication/internal/casework/settlementfamily.go",
			"if !s.Run.State.Waiting() {\n			return // another", "if false {\n			return // another"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAPaymentUnderAnOlderKeyLeavesARunThatRunsToItsWorker"},
	},
	{
		Name:     "no fork of an unknown past the key's lifetime",
		Edits:    []Edit{{"postadjudication/internal/casework/fork.go", "case s.Case.Kind == journal.KindSettlement && r.UnknownOpen > 0 && (f.ExecutorOf(r.Target) == nil || f.keyMayExpire(&r, at)):", "case false:"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestUnknownMoneyIsReconciledBeforeItIsForked"},
	},
	{
		Name:     "no higher generation while money is unknown",
		Edits:    []Edit{{"postadjudication/internal/casework/actions.go", "	case s.Run.UnknownOpen > 0:\n		return refusal.GateReconcileFirst\n	case s.Run.HasOutstandingCall() && s.Run.Class != escrow.Executed: // one key is executed once\n		return refusal.GateCallOutstanding\n	}", "	}"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestPaidButLostAnswerFollowedByARefusalStaysUnknown"},
	},
	{
		Name:     "no higher generation while a run is live",
		Edits:    []Edit{{"postadjudication/internal/casework/actions.go", "	case s.Run.State.Live():\n		return refusal.GateLive\n	case s.Run.UnknownOpen > 0:", "	case s.Run.UnknownOpen > 0:"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestRepliesOfASubmission"},
	},
	{
		Name:     "no other outcome of the same generation",
		Edits:    []Edit{{"postadjudication/admission.go", "	case a.Outcome != c.State.Outcome:\n		return Conflicting\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestRepliesOfASubmission"},
	},
	{
		Name:     "no other operation key while a call of the parent is out",
		Edits:    []Edit{{"postadjudication/internal/casework/fork.go", "return !other.outstanding, other.err", "return true, other.err"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAForkKeepsItsKeyWhileACallOfTheParentIsOut"},
	},
	{
		Name:     "no other operation key while the calls under the old one can't be read",
		Edits:    []Edit{{"postadjudication/internal/casework/fork.go", "return !other.outstanding, other.err", "return !other.outstanding, nil"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestALetterWhoseCallsCanNotBeReadIsNotForked"},
	},
	{
		Name:     "no higher generation while a call of a letter is out",
		Edits:    []Edit{{"postadjudication/internal/casework/actions.go", "	case s.Run.HasOutstandingCall() && s.Run.Class != escrow.Executed: // one key is executed once\n		return refusal.GateCallOutstanding\n	}", "	}"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnOutstandingCallKeepsTheNextGenerationOut"},
	},
	{
		Name:     "a lookup is not believed while a call is on its way to the service",
		Edits:    []Edit{{"postadjudication/internal/casework/lookups.go", "case q.remainingFlight() > 0:\n		return escrow.Unknown, lookupPremature", "case false:\n		return escrow.Unknown, lookupPremature"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestWhatTheAnswerOfALookupMeans"},
	},
	{
		Name:     "a lookup gets the time since the last call",
		Edits:    []Edit{{"postadjudication/internal/casework/lookups.go", "call.SentAgo = max(0, q.sinceLastCall-f.CallTimeLimit)", "call.SentAgo = 24 * time.Hour"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestALookupIsToldWhetherACallMayBeOnItsWay"},
	},
	{
		Name:     "a lookup is not believed while a call of the parent is out",
		Edits:    []Edit{{"postadjudication/internal/casework/lookups.go", "outstanding[s.Run.ID] = s.Run.OutstandingCalls", "outstanding[s.Run.ID] = nil"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestALookupIsNotBelievedWhileACallOfTheParentIsOut"},
	},
	{
		Name:     "a lookup is not believed while a call of a living process is out",
		Edits:    []Edit{{"postadjudication/internal/casework/lookups.go", "case q.outstanding:\n		return escrow.Unknown, lookupOutstanding", "case false:\n		return escrow.Unknown, lookupOutstanding"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestTheCallOfALostWorkerIsOnItsWayForAWhile"},
	},
	{
		Name:     "a lookup is not believed while the call of a lost worker is on its way",
		Edits:    []Edit{{"postadjudication/internal/casework/lookups.go", "if q.lostCall {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestALetterOfALostWorkerIsClearedByALookup"},
	},
	{
		Name:     "a key that may be forgotten proves nothing",
		Edits:    []Edit{{"postadjudication/internal/casework/lookups.go", "(q.keyAge < 0 || q.keyAge >= q.keyRetention-q.margin)", "false"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAForgottenKeyIsNotTakenForNotExecuted"},
	},
	{
		Name:     "an executor without InFlight is not believed at once",
		Edits:    []Edit{{"postadjudication/internal/casework/lookups.go", "span := f.DefaultInFlight", "span := time.Duration(0)"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestAnExecutorThatStatesNoSpanIsGivenTheAssumedOne"},
	},
	{
		Name:     "a call with an unlimited InFlight is never over",
		Edits:    []Edit{{"postadjudication/internal/casework/lookups.go", "	return min(span, maxInFlight)", "	return span"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestACallThatIsOnItsWayForEverIsNeverOver"},
	},
	{
		Name:     "a finding is in the currency of its case",
		Edits:    []Edit{{"postadjudication/internal/casework/findings.go", "if f.Currency != \"\" && f.Currency != seen.Case.Currency {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestWhichSumOfAFindingIsConfirmed"},
	},
	{
		Name:     "a sum of money is read as it is written",
		Edits:    []Edit{{"settlement/money.go", "if err != nil || number != written &&", "if err != nil || false && number != written &&"}},
		CaughtBy: Detector{Package: "./settlement", Test: "TestMoneyIsReadAsPeopleWriteIt"},
	},
	{
		Name:     "a number of a flag is decimal",
		Edits:    []Edit{{"internal/cli/shell/numbers.go", "if !d.form.pattern.MatchString(text) {", "if false {"}},
		CaughtBy: Detector{Package: "./internal/cli", Test: "TestEveryFlagForANumberReadsPlainDecimalDigits"},
	},
	{
		Name:     "a finding has to allow for the call that may be on its way",
		Edits:    []Edit{{"postadjudication/internal/casework/findings.go", "if f.Class != escrow.NotExecuted || f.CallOutstanding {", "if true {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAFindingWhileACallIsOutstandingSaysThatItKnows"},
	},
	{
		Name:     "a finding against what is on record is confirmed",
		Edits:    []Edit{{"postadjudication/internal/casework/findings.go", "if err == nil && contradicted != \"\" && !f.ContradictsRecord {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAFindingAgainstTheRecordIsConfirmed"},
	},
	{
		Name:     "a lookup that finds nothing clears no letter of which one before found a payment",
		Edits:    []Edit{{"postadjudication/internal/casework/findings.go", "case was.Answer == escrow.Executed:", "case false:"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestALookupThatContradictsTheOneBeforeClearsNothing"},
	},
	{
		Name:     "no letter is looked up while a call of it can be on its way",
		Edits:    []Edit{{"postadjudication/internal/casework/lookuploop.go", "now.Sub(since) >= bound &&", "now.Sub(since) >= 0*bound &&"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestNothingIsAskedWhileACallCanBeOnItsWay"},
	},
	{
		Name:     "a letter is cleared only by two lookups",
		Edits:    []Edit{{"postadjudication/internal/casework/lookuprule.go", "	case found.Class == escrow.NotExecuted && next.NotExecutedAt.IsZero():", "	case found.Class == escrow.NotExecuted:\n		return next, true\n	case false:"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestWhichAnswersAreBelieved"},
	},
	{
		Name:     "a run is not called again after one lookup that finds nothing",
		Edits:    []Edit{{"postadjudication/internal/casework/lookups.go", "	if believed {\n		return found", "	if true || believed {\n		return found"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestALookupThatLiesOnceBeforeAClaimIsNotBelieved"},
	},
	{
		Name:     "an answer before another attempt is not the first of two",
		Edits:    []Edit{{"postadjudication/internal/casework/lookuprule.go", "if was.Attempt == run.Attempt && ", "if "}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestWhichAnswersAreBelieved"},
	},
	{
		Name:     "not executed is not believed after executed",
		Edits:    []Edit{{"postadjudication/internal/casework/lookuprule.go", "case was.Answer == escrow.Executed:", "case false:"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestWhichAnswersAreBelieved"},
	},
	{
		Name:     "a waiting run of unknown outcome is looked up",
		Edits:    []Edit{{"postadjudication/internal/journal/lookups.go", "(r.letter = 'open' OR r.live AND r.state <> 'running' AND r.reason <> 'accepted')", "r.letter = 'open'"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAWaitingRunThatWasPaidIsNotCalledAgain"},
	},
	{
		Name:     "an accepted call spends no attempt",
		Edits:    []Edit{{"background/decide.go", "result: *res, reason: receipts.ReasonAccepted,", "charge: ChargeAttempt, result: *res, reason: receipts.ReasonAccepted,"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnAcceptedCallThatIsExecutedLaterSettles"},
	},
	{
		Name:     "an accepted call is asked about before another one is made",
		Edits:    []Edit{{"postadjudication/internal/casework/settlementfamily.go", "if isAskedFirst(f, &s.Run) {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnAcceptedCallThatIsExecutedLaterSettles"},
	},
	{
		Name:     "an accepted call may have paid",
		Edits:    []Edit{{"postadjudication/escrowhttp/answer.go", "Class: escrow.Unknown, Retry: true, Accepted: true,", "Class: escrow.NotExecuted, Retry: true,"}},
		CaughtBy: Detector{Package: "./postadjudication/escrowhttp", Test: "TestWhatAnAsynchronousServiceAnswers"},
	},
	{
		Name:     "not executed is not believed after accepted",
		Edits:    []Edit{{"postadjudication/internal/casework/lookuprule.go", "case found.Accepted:", "case false:"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnAcceptedCallThatIsRefusedLaterIsALetter"},
	},
	{
		Name:     "an acceptance counts of a run whose answer was lost",
		Edits:    []Edit{{"postadjudication/internal/casework/lookups.go", "found.Class == escrow.Unknown && !answer.Accepted && !r.AwaitsEnd():", "found.Class == escrow.Unknown && !r.AwaitsEnd():"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnAcceptanceBetweenTwoDenialsCountsAfterALostAnswer"},
	},
	{
		Name:     "no finding clears an accepted call without confirmation",
		Edits:    []Edit{{"postadjudication/internal/casework/lookups.go", "if err == nil && wasAccepted(&r, &was) {", "if err == nil && wasAccepted(&r, &was) && err != nil {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestNobodyClearsAnAcceptedCallWithoutConfirmation"},
	},
	{
		Name:     "no single lookup clears an accepted call",
		Edits:    []Edit{{"postadjudication/internal/casework/findings.go", "case wasAccepted(&seen.Run, &was):", "case wasAccepted(&seen.Run, &was) && err != nil:"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestNobodyClearsAnAcceptedCallWithoutConfirmation"},
	},
	{
		Name:     "no key is surely forgotten because the database's clock was set ahead",
		Edits:    []Edit{{"postadjudication/internal/casework/remotesettlements.go", "elapsed(r.Settlements, run.FirstSentAt, at) >=", "at.Sub(run.FirstSentAt) >="}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestWhenAKeyHasNoEnd"},
	},
	{
		Name:     "an accepted call is asked about until its span is over",
		Edits:    []Edit{{"postadjudication/internal/casework/accepted.go", "!now.Before(until) {", "until.IsZero() {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnAcceptedCallThatDoesNotEndIsALetterOfUnknownOutcome"},
	},
	{
		Name:     "a wait after an unknown outcome ends while the service knows the key",
		Edits:    []Edit{{"postadjudication/internal/casework/settlementfamily.go", "	capRetry(f, &tr, &s.Run)\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAWaitEndsWhileTheServiceKnowsTheKey"},
	},
	{
		Name:     "the lifetime of a key that was forgotten counts from the next call",
		Edits:    []Edit{{"background/transition.go", "now.FirstSentAt.IsZero() || tr.KeyForgotten {", "now.FirstSentAt.IsZero() {"}, {"receipts/fold.go", "f.h.FirstSentAt.IsZero() || e.Payload.KeyForgotten {", "f.h.FirstSentAt.IsZero() {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestTheLifetimeOfAForgottenKeyCountsFromTheNextCall"},
	},
	{
		Name:     "a key from before the database's clock was set back is not used again",
		Edits:    []Edit{{"postadjudication/internal/casework/keylifetime.go", "if back := f.ClockSetBack(); !back.IsZero() && ", "if back := f.ClockSetBack(); back.IsZero() && "}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAKeyFromBeforeTheDatabaseClockWasSetBackIsNotUsedAgain"},
	},
	{
		Name:     "it is kept from where the database's clock was set back",
		Edits:    []Edit{{"postadjudication/internal/journal/sessions.go", "THEN greatest(i.clock_set_back, i.clock_read, $8) ELSE", "THEN i.clock_set_back ELSE"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAKeyFromBeforeTheDatabaseClockWasSetBackIsNotUsedAgain"},
	},
	{
		Name:     "a call is on its way for as long as the database's clock surely shows",
		Edits:    []Edit{{"postadjudication/internal/casework/keylifetime.go", "Later(since, f.ClockUnchanged())", "Later(since, time.Time{})"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestWhatIsKnownOfTheCallsUnderAKey"},
	},
	{
		Name:     "two answers are apart by what the database's clock surely shows",
		Edits:    []Edit{{"postadjudication/internal/casework/lookuprule.go", "elapsed(f, next.NotExecutedAt, now) >= gap", "now.Sub(next.NotExecutedAt) >= gap"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestWhichAnswersAreBelieved"},
	},
	{
		Name:     "a process finds that the database's clock was set",
		Edits:    []Edit{{"background/clock.go", "before.differs(j.current) {", "before.differs(j.current) && false {"}},
		CaughtBy: Detector{Package: "./background", Test: "TestClockFilter"},
	},
	{
		Name:     "a process without a session finds that the database's clock was set",
		Edits:    []Edit{{"background/clock.go", "c.filter.differs(fresh.current) {", "c.filter.differs(fresh.current) && false {"}},
		CaughtBy: Detector{Package: "./background", Test: "TestAProcessWithoutASessionFindsThatTheClockWasSet"},
	},
	{
		Name:     "what a process finds of the database's clock is kept",
		Edits:    []Edit{{"postadjudication/internal/journal/sessions.go", "greatest(i.clock_unchanged_since, CASE WHEN $9::timestamptz <= clock_timestamp() THEN $9 END)", "i.clock_unchanged_since"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestAHeartbeatKeepsSinceWhenTheClockIsUnchanged"},
	},
	{
		Name:     "the database's clock may have been set while no process followed it",
		Edits:    []Edit{{"postadjudication/internal/journal/sessions.go", "i.clock_read + $10 * interval '1s' THEN", "i.clock_read + $10 * interval '1y' THEN"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestAHeartbeatKeepsSinceWhenTheClockIsUnchanged"},
	},
	{
		Name:     "no order is leased while its key is about to be forgotten",
		Edits:    []Edit{{"postadjudication/internal/casework/remotesettlements.go", "	case !r.forgottenByWorkers(run, at):", "	case at.IsZero() && !r.forgottenByWorkers(run, at):"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestNoOrderIsGivenWhileItsKeyIsAboutToBeForgotten"},
	},
	{
		Name:     "a refusal that states a payment under our key proves nothing",
		Edits:    []Edit{{"postadjudication/escrowhttp/answer.go", "	case x.statesPayment(raw):", "	case false && x.statesPayment(raw):"}},
		CaughtBy: Detector{Package: "./postadjudication/escrowhttp", Test: "TestEveryStatusMeansWhatTheTableSays"},
	},
	{
		Name:     "a refusal of the operation key proves nothing",
		Edits:    []Edit{{"postadjudication/escrowhttp/answer.go", "	case strings.Contains(about, \"idempoten\"):", "	case false && strings.Contains(about, \"idempoten\"):"}},
		CaughtBy: Detector{Package: "./postadjudication/escrowhttp", Test: "TestARefusalOfTheKeyProvesNothing"},
	},
	{
		Name:     "a refusal that may be of the operation key and can't be read proves nothing",
		Edits:    []Edit{{"postadjudication/escrowhttp/answer.go", "	case !v.Retry && unreadable && mayBeAboutKey(resp.StatusCode):", "	case false && unreadable:"}},
		CaughtBy: Detector{Package: "./postadjudication/escrowhttp", Test: "TestARefusalOfTheKeyProvesNothing"},
	},
	{
		Name:     "another sum than was left is for a person",
		Edits:    []Edit{{"postadjudication/internal/casework/lookuploop.go", "return found.Class == escrow.Executed && s.Run.Letter == background.LetterOpen && found.Moved != s.Case.State.Asked-s.Case.State.Moved", "return false"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/casework", Test: "TestAnotherSumThanWasLeft"},
	},
	{
		Name:     "an amount that makes no sense proves nothing",
		Edits:    []Edit{{"postadjudication/internal/casework/settlementfamily.go", "moved >= 1 && moved <= max(asked, maxBelievableMoved)", "moved >= 1"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnAbsurdAmountIsAnUnknownOutcome"},
	},
	{
		Name:     "a letter of unknown money is never purged",
		Edits:    []Edit{{"postadjudication/internal/casework/purgeletters.go", "case moneyUnknown(f.Snapshot):", "case false:"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestAPurgeTakesWhatItsFilterSelectsAndWasCounted"},
	},
	{
		Name:     "a fork of an unknown letter begins as unknown",
		Edits:    []Edit{{"postadjudication/internal/casework/fork.go", "	if moneyUnknown(*s) {", "	if false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAForkOfAnUnknownLetterIsUnknownUntilThatIsResolved"},
	},
	{
		Name:     "a letter that is held is never purged",
		Edits:    []Edit{{"postadjudication/internal/casework/purgeletters.go", "case f.Annotations.Held:", "case false:"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestAPurgeTakesWhatItsFilterSelectsAndWasCounted"},
	},
	{
		Name:     "a plan acts only on the versions that it was made of",
		Edits:    []Edit{{"postadjudication/internal/casework/decision.go", "if g.Head != nil && s.Case.Head != *g.Head {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestAPlanLeavesAloneWhatItsFilterSelectsNoMore"},
	},
	{
		Name:     "a redirect is never followed",
		Edits:    []Edit{{"postadjudication/escrowhttp/config.go", "return http.ErrUseLastResponse }", "return nil }"}},
		CaughtBy: Detector{Package: "./postadjudication/escrowhttp", Test: "TestARedirectIsNeverFollowed"},
	},
	{
		Name:     "a success is only what its body proves",
		Edits:    []Edit{{"postadjudication/escrowhttp/answer.go", "case b.Status != statusExecuted && b.Status != statusAlreadyExecuted:", "case false:"}},
		CaughtBy: Detector{Package: "./postadjudication/escrowhttp", Test: "TestASuccessIsOnlyWhatItsBodyProves"},
	},
	{
		Name:     "a settled case stays settled",
		Edits:    []Edit{{"settlement/table.go", "	if !changesStatus && !slices.Contains(r.stays, s.Progression) {", "	if false {"}},
		CaughtBy: Detector{Package: "./settlement", Test: "TestWhatIsNotInTheTableIsRefused"},
	},
	{
		Name:     "no other operation key while its case is unknown",
		Edits:    []Edit{{"postadjudication/internal/casework/fork.go", " && s.Run.Class == escrow.NotExecuted && s.Run.UnknownOpen == 0 && !s.Run.HasOutstandingCall()", ""}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAForkOfAnUnknownLetterKeepsItsKey"},
	},
	{
		Name:     "a decision that was cancelled stays so",
		Edits:    []Edit{{"postadjudication/admission.go", "	return Cancelled // by a person, closed by a person's finding, or by freeing its reservation", "	return Created"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestWhatIsCancelledStaysCancelled"},
	},
	{
		Name:     "an adjudication that contradicts an ended case is refused",
		Edits:    []Edit{{"postadjudication/admission.go", "	case c.State.Progression.Ended():\n		return CaseEnded\n", "	case c.State.Progression.Ended():\n		return AlreadyExecuted\n"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAReversalOfAnEndedCaseIsRefusedWithAReceipt"},
	},
	{
		Name:     "a payment under an older key takes no more of the reservation than it needs",
		Edits:    []Edit{{"settlement/effect.go", "	cut := min(e.Paid, s.Reserved)\n", "	cut := s.Reserved\n"}},
		CaughtBy: Detector{Package: "./settlement", Test: "TestPaymentsUnderAnOlderKey"},
	},
	{
		Name:     "a lookup by hand says nothing of a call made meanwhile",
		Edits:    []Edit{{"postadjudication/internal/casework/findings.go", "case asked.Class == escrow.NotExecuted && seen.Run.Attempt != asked.Attempt:", "case false:"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestALookupSaysNothingOfACallThatWasMadeMeanwhile"},
	},
}

// bookingGuards is what cases book: the audit folds receipts by the same table, so that the ledger of the escrow
// service alone shows a wrong sum.
var bookingGuards = []Guard{
	{
		Name:     "a case books what was paid, as the runs of chaos see",
		Edits:    []Edit{{"settlement/effect.go", "		s.Released += e.Paid", "		s.Released++"}},
		CaughtBy: Detector{Package: "./internal/chaos", Test: "TestAShortRunLosesNothing"},
	},
	{
		Name:     "a case books what was paid, as the demonstration sees",
		Edits:    []Edit{{"settlement/effect.go", "		s.Refunded += e.Paid", "		s.Refunded++"}},
		CaughtBy: Detector{Package: "./internal/cli/demo", Test: "TestTheDemonstrationHoldsEveryInvariantWithNothingConfigured"},
	},
	{
		Name:     "an escrow commits what its cases book",
		Edits:    []Edit{{"settlement/effect.go", "effect := Effect{Committed: e.Paid - s.Reserved, Excess: s.excess(e)}", "effect := Effect{Excess: s.excess(e)}"}},
		CaughtBy: Detector{Package: "./internal/chaos", Test: "TestAShortRunLosesNothing"},
	},
}

// escrowGuards is what guards the sums of escrows, and those who do not wait for one.
var escrowGuards = []Guard{
	{
		Name: "a reservation counts only the deltas that it folded itself",
		Edits: []Edit{{"postadjudication/internal/journal/opensql.go", "-delta FROM fold) e GROUP BY id",
			"-y.delta FROM recourse.escrow_deltas y JOIN locked_escrows x ON x.id = y.escrow_id) e GROUP BY id"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestADeltaIsCountedOnceByWhoeverFoldsIt"},
	},
	{
		Name: "the fold adds only the deltas that it deleted itself",
		Edits: []Edit{{"postadjudication/internal/journal/escrows.go", "FROM (SELECT escrow_id, sum(delta)::bigint AS delta FROM fold GROUP BY 1) s",
			"FROM (SELECT y.escrow_id, sum(y.delta)::bigint AS delta FROM recourse.escrow_deltas y JOIN locked_escrows e ON e.id = y.escrow_id GROUP BY 1) s"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestTheSumOfAnEscrowIsRightAtEveryMoment"},
	},
	{
		Name:     "the escrow delta of a transition is recorded with it",
		Edits:    []Edit{{"postadjudication/internal/journal/transitionsql.go", "FROM ok WHERE delta <> 0", "FROM ok WHERE false"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestATransitionNeverWaitsForItsEscrow"},
	},
	{
		Name:     "the fold waits for no lock of an escrow",
		Edits:    []Edit{{"postadjudication/internal/journal/escrows.go", "FOR NO KEY UPDATE OF e SKIP LOCKED", "FOR NO KEY UPDATE OF e"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestATransitionNeverWaitsForItsEscrow"},
	},
	{
		Name:     "one submission of an escrow waits for a transaction that holds it",
		Edits:    []Edit{{"postadjudication/internal/journal/pg/slowpath.go", "if held, ok := t.byLock[lock]; ok {", "if held, ok := t.byLock[lock]; ok && t == nil {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestOneSubmissionOfAnEscrowWaitsForAnOpenTransaction"},
	},
	{
		Name: "naming an escrow waits for no lock of it",
		Edits: []Edit{{"postadjudication/internal/journal/escrows.go",
			"WHERE NOT EXISTS (SELECT FROM recourse.escrows e WHERE e.tenant = t.tenant AND e.reference = t.reference)\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnOpenTransactionKeepsOnlySubmissionsForItsEscrowWaiting"},
	},
	{
		Name:     "a return takes two people",
		Edits:    []Edit{{"postadjudication/bulk/secondperson.go", "case Reconcile, Mark, Hold, Release:", "case Reconcile, Mark, Hold, Release, Return:"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestAPaymentThatCameBackIsRecordedByTwoPeopleAndPaidAgain"},
	},
	{
		Name:     "no more comes back of a payment than was paid under its key",
		Edits:    []Edit{{"postadjudication/internal/binding/settlement.go", "if p == nil || e.Amount > p.Left() {", "if p == nil {"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/binding", Test: "TestWhatCameBackWasPaidUnderTheSameKey"},
	},
	{
		Name:     "no more comes back of a case than it has paid",
		Edits:    []Edit{{"settlement/event.go", "case e.Amount > left:", "case false:"}},
		CaughtBy: Detector{Package: "./settlement", Test: "TestAReturnedPaymentIsDecidedAgain"},
	},
	{
		Name:     "a return with a reference that is recorded is not recorded again",
		Edits:    []Edit{{"postadjudication/internal/journal/escrows.go", "case n != int64(len(r.Returns)):", "case n < 0:"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestAReturnIsRecordedOnce"},
	},
	{
		Name:     "a return corrects what was paid beyond the decision first",
		Edits:    []Edit{{"settlement/effect.go", "s.Moved = max(0, min(s.Moved, s.Asked)-max(0, e.Amount-e.Overpaid))", "s.Moved = max(0, s.Moved-e.Amount)"}},
		CaughtBy: Detector{Package: "./settlement", Test: "TestAReturnCorrectsWhatWasPaidBeyondTheDecisionFirst"},
	},
	{
		Name:     "no attempt begins for a decision that was carried out before a payment came back",
		Edits:    []Edit{{"settlement/state.go", "s.Progression == DisputeReady && s.Reserved == 0)", "false)"}},
		CaughtBy: Detector{Package: "./settlement", Test: "TestNoAttemptBeginsForADecisionThatWasCarriedOutBeforeAReturn"},
	},
	{
		Name:     "a decision whose payment came back is not accepted again in its own generation",
		Edits:    []Edit{{"postadjudication/admission.go", "case state.Moved > 0, state.Returned > 0 && active.Class == escrow.Executed:", "case state.Moved > 0:"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestAPaymentThatCameBackIsRecordedByTwoPeopleAndPaidAgain"},
	},
	{
		Name:     "a recorded return has its receipt, and the audit says which one has none",
		Edits:    []Edit{{"postadjudication/internal/trail/mismatches.go", "c.returned > 0 AND c.returned <> t.sum", "false"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestTamperingAndWhatDetectsIt"},
	},
	{
		Name: "a run that may have paid is not cancelled when its case ends",
		Edits: []Edit{{"postadjudication/internal/casework/settlementfamily.go",
			"tr.Subtype = receipts.Cancelled; tr.Result.Class == escrow.Unknown || s.Run.Class == escrow.Unknown {", "tr.Subtype = receipts.Cancelled; false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestARunThatEndsOnAnEndedCaseSaysSo"},
	},
	{
		Name:     "an escrow that a case has used is not corrected",
		Edits:    []Edit{{"postadjudication/internal/journal/escrows.go", "    AND NOT EXISTS (SELECT FROM recourse.cases c WHERE c.escrow_id = e.id) FOR NO", "    FOR NO"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestOnlyAnEscrowThatNoCaseHasUsedIsCorrected"},
	},
}
