package prove

// money is what guards decisions about money: rule 7 and its neighbours.
var money = []Guard{
	{
		Name: "no call after an unknown one past the key's lifetime",
		Edits: []Edit{{"postadjudication/family.go",
			"return r.UnknownOpen > 0 && !r.FirstSentAt.IsZero() && r.State.Waiting() && f.over(r, at)", "return false"}},
		By: Catch{Package: "./postadjudication", Test: "TestUnknownIsNotRepeatedPastTheKeyLifetime"},
	},
	{
		Name:  "no fork of an unknown past the key's lifetime",
		Edits: []Edit{{"postadjudication/fork.go", "case s.Case.Kind == postgres.KindSettlement && r.UnknownOpen > 0 && (f.executor == nil || f.over(&r, at)):", "case false:"}},
		By:    Catch{Package: "./postadjudication", Test: "TestUnknownMoneyIsReconciledBeforeItIsForked"},
	},
	{
		Name:  "no higher generation while money is unknown",
		Edits: []Edit{{"postadjudication/admission.go", "	case s.Run.UnknownOpen > 0:\n		return ReconcileFirst\n	}\n	return Created", "	}\n	return Created"}},
		By:    Catch{Package: "./postadjudication", Test: "TestRepliesToADeadLetterAndAfterIt"},
	},
	{
		Name:  "no higher generation while a run is live",
		Edits: []Edit{{"postadjudication/admission.go", "	case s.Run.State.Live():\n		return Conflicting\n", ""}},
		By:    Catch{Package: "./postadjudication", Test: "TestRepliesOfASubmission"},
	},
	{
		Name:  "no other outcome of the same generation",
		Edits: []Edit{{"postadjudication/admission.go", "	case a.Outcome != c.State.Adjudication:\n		return Conflicting\n", ""}},
		By:    Catch{Package: "./postadjudication", Test: "TestRepliesOfASubmission"},
	},
	{
		Name:  "no other operation key while a call of the parent is out",
		Edits: []Edit{{"postadjudication/fork.go", "return err == nil && !out", "return err == nil"}},
		By:    Catch{Package: "./postadjudication", Test: "TestAForkKeepsItsKeyWhileACallOfTheParentIsOut"},
	},
	{
		Name:  "a lookup is not believed while a call is on its way to the service",
		Edits: []Edit{{"postadjudication/escrowhttp/executor.go", "a.Class == postadjudication.NotExecuted && c.SentAgo < e.inFlight", "false"}},
		By:    Catch{Package: "./postadjudication/escrowhttp", Test: "TestAnAbsenceProvesNothingWhileACallMayBeOnItsWay"},
	},
	{
		Name:  "a lookup is told for how long nothing was sent",
		Edits: []Edit{{"postadjudication/family.go", "call.SentAgo = f.sentAgo(ctx, r)", "call.SentAgo = 24 * time.Hour"}},
		By:    Catch{Package: "./postadjudication", Test: "TestALookupIsToldWhetherACallMayBeOnItsWay"},
	},
	{
		Name:  "a lookup is not believed while a call of the parent is out",
		Edits: []Edit{{"postadjudication/family.go", "	case out:\n		return background.Result{Class: Unknown", "	case false:\n		return background.Result{Class: Unknown"}},
		By:    Catch{Package: "./postadjudication", Test: "TestALookupIsNotBelievedWhileACallOfTheParentIsOut"},
	},
	{
		Name:  "an amount that makes no sense proves nothing",
		Edits: []Edit{{"postadjudication/family.go", "a.Moved >= 1 && a.Moved <= max(asked, believable)", "a.Moved >= 1"}},
		By:    Catch{Package: "./postadjudication", Test: "TestAnAbsurdAmountIsAnUnknownOutcome"},
	},
	{
		Name:  "a letter of unknown money is never purged",
		Edits: []Edit{{"postadjudication/retire.go", "case moneyUnknown(f.Snapshot):", "case false:"}},
		By:    Catch{Package: "./postadjudication", Test: "TestHeldLettersAndUnknownMoneyOutliveTheirRetention"},
	},
	{
		Name:  "a fork of an unknown letter begins as unknown",
		Edits: []Edit{{"postadjudication/fork.go", "	if moneyUnknown(*s) {", "	if false {"}},
		By:    Catch{Package: "./postadjudication", Test: "TestAForkOfAnUnknownLetterIsUnknownUntilThatIsResolved"},
	},
	{
		Name:  "a letter that is held is never purged",
		Edits: []Edit{{"postadjudication/retire.go", "case f.Desk.Held:", "case false:"}},
		By:    Catch{Package: "./postadjudication", Test: "TestHeldLettersAndUnknownMoneyOutliveTheirRetention"},
	},
	{
		Name:  "what a plan does is done to what it saw",
		Edits: []Edit{{"postadjudication/bulkguard.go", "if s.Case.Head != a.head {", "if false {"}},
		By:    Catch{Package: "./postadjudication", Test: "TestABulkLeavesAloneWhatMovedAndWhatAGateRefuses"},
	},
	{
		Name:  "a redirect is never followed",
		Edits: []Edit{{"postadjudication/escrowhttp/config.go", "return http.ErrUseLastResponse }", "return nil }"}},
		By:    Catch{Package: "./postadjudication/escrowhttp", Test: "TestARedirectIsNeverFollowed"},
	},
	{
		Name:  "a success is only what its body proves",
		Edits: []Edit{{"postadjudication/escrowhttp/answer.go", "case b.Status != statusExecuted && b.Status != statusAlreadyExecuted:", "case false:"}},
		By:    Catch{Package: "./postadjudication/escrowhttp", Test: "TestASuccessIsOnlyWhatItsBodyProves"},
	},
	{
		Name:  "what is settled stays settled",
		Edits: []Edit{{"settlement/apply.go", "	if !moves && !slices.Contains(r.stays, s.Progression) {", "	if false {"}},
		By:    Catch{Package: "./settlement", Test: "TestWhatIsNotInTheTableIsRefused"},
	},
}
