package prove

// peopleGuards is what guards money from one person alone, and what is reserved from being freed.
var peopleGuards = []Guard{
	{
		Name:     "a number of people that was agreed is not written over one that was set since",
		Edits:    []Edit{{"postadjudication/internal/journal/people.go", " AND ($6::timestamptz IS NULL OR p.at <= $6)", " AND ($6::timestamptz IS NULL OR true)"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestANumberOfPeopleIsSetUnlessSomebodySetItSince"},
	},
	{
		Name:     "nobody runs alone a plan for money of their own",
		Edits:    []Edit{{"postadjudication/bulk/secondperson.go", "case access.SamePerson(planned, started, by.keys):", "case access.SamePerson(planned, started, by.keys) && false:"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestOfManyWhoRunOnePlanOneActsAndNeverItsPlanner"},
	},
	{
		Name:     "whoever made the other's key counts as the same person",
		Edits:    []Edit{{"internal/access/principal.go", "if nameA == nameB || ofA[nameB] || ofB[nameA] {", "if nameA == nameB {"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestWhoMayRunWhatAnotherPlanned"},
	},
	{
		Name:     "two keys that one principal made are one person",
		Edits:    []Edit{{"internal/access/principal.go", "if ofB[maker] && len(byName[maker]) > 0 {", "if ofB[maker] && false {"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestWhoMayRunWhatAnotherPlanned"},
	},
	{
		Name:     "the case of a name makes no second person",
		Edits:    []Edit{{"internal/access/principal.go", "return strings.ToLower(principal)", "return principal"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestWhoMayRunWhatAnotherPlanned"},
	},
	{
		Name:     "a bare name is the person of that name",
		Edits:    []Edit{{"internal/access/principal.go", "if !strings.Contains(principal, \":\") {", "if principal == \"\" {"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestBreakGlassIsForAnApproverAndLeavesItsTraces"},
	},
	{
		Name:     "only principals of the kind user are persons",
		Edits:    []Edit{{"internal/access/principal.go", "return isKind && kind != \"user\"", "return isKind && (kind == \"service\" || kind == \"rule\" || kind == \"system\")"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestWhoMayRunWhatAnotherPlanned"},
	},
	{
		Name: "the token of a successor goes to its own principal only",
		Edits: []Edit{
			{"internal/api/keys.go", "if c.Key != \"\" && !access.SamePrincipal(old.Principal, c.Principal) {", "if false {"},
			{"postadjudication/accesskeys.go", "if casework.CallerOf(ctx).Key != \"\" && !access.SamePrincipal(old.Principal, t.actor) {", "if false {"},
		},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestAKeyIsRotatedOverHTTPByItsOwnPrincipal"},
	},
	{
		Name:     "lowering how many people it takes is planned first",
		Edits:    []Edit{{"postadjudication/people.go", "if q.People < required {", "if q.People < required && false {"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestHowManyPeopleItTakesIsSetWithAReceipt"},
	},
	{
		Name:     "no incident lowers for good how many people it takes",
		Edits:    []Edit{{"postadjudication/bulk/secondperson.go", "if by.breakGlass != nil && Action(b.Action) == People {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestHowManyPeopleItTakesIsSetWithAReceipt"},
	},
	{
		Name:     "a higher generation is paid elsewhere after a plan of two people only",
		Edits:    []Edit{{"postadjudication/admission.go", "|| a.targets.SameService(a.target(), s.Run.Target) {", "|| true {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAHigherGenerationIsPaidElsewhereAfterAPlanOfTwoPeopleOnly"},
	},
	{
		Name:     "a plan permits the target and the case that it names only",
		Edits:    []Edit{{"postadjudication/bulk/withoutitems.go", "if m := spec.Move; m != nil && m.Run == run && m.Target == target {", "if m := spec.Move; m != nil {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAHigherGenerationIsPaidElsewhereAfterAPlanOfTwoPeopleOnly"},
	},
	{
		Name:     "no program runs a plan that takes two people",
		Edits:    []Edit{{"postadjudication/bulk/secondperson.go", "case by.unattended():", "case by.unattended() && false:"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestWhoMayRunWhatAnotherPlanned"},
	},
	{
		Name:     "a finding of executed is planned first",
		Edits:    []Edit{{"postadjudication/deadletter/reconcile.go", "if people > 1 || access.IsProgram(l.actor) {", "if access.IsProgram(l.actor) {"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestAFindingOfExecutedTakesTwoPeople"},
	},
	{
		Name:     "a purge of settlements takes two people",
		Edits:    []Edit{{"postadjudication/bulk/secondperson.go", "case Fork, Purge:", "case Fork:"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestAPurgeOfSettlementsTakesTwoPeople"},
	},
	{
		Name:     "a plan of an action that this version does not know is not started",
		Edits:    []Edit{{"postadjudication/bulk/states.go", "if !Action(b.Action).isKnown() {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestAPlanOfAnUnknownActionIsNotStartedAndDoesNothing"},
	},
	{
		Name:     "a cancelled fork frees nothing",
		Edits:    []Edit{{"postadjudication/internal/casework/settlementfamily.go", "return tr.Subtype == receipts.Cancelled && !s.Run.Parent.IsZero() && s.Case.State.Reserved > 0", "return false"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestACancelOfAForkFreesNothing"},
	},
	{
		Name:     "a finding that closes a letter frees nothing",
		Edits:    []Edit{{"postadjudication/internal/casework/settlementfamily.go", "settlement.Event{Fact: settlement.Closed, KeepReserved: true}", "settlement.Event{Fact: settlement.Closed}"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestALetterThatCantBeForkedEnds"},
	},
	{
		Name:     "a closed letter takes a finding that it was paid",
		Edits:    []Edit{{"background/transition.go", "return r.Letter == LetterPurged || r.Class != Executed && (r.Letter == LetterReconciled || r.Letter == LetterForked || r.Letter == LetterSuperseded || r.State == Cancelled)", "return r.Letter == LetterPurged"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAPaymentIsRecordedAlsoAfterItsReservationWasFreed"},
	},
	{
		Name:     "a finding after a plan was made makes the plan stale",
		Edits:    []Edit{{"postadjudication/bulk/outcomes.go", "	return true\n}\n", "	return false\n}\n"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestAFindingMakesAPlanStale"},
	},
	{
		Name:     "beside the database a lookup of executed is planned first",
		Edits:    []Edit{{"postadjudication/deadletter/reconcile.go", "if found.Class != escrow.Executed || !declared {", "if !access.IsProgram(\"\") {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestALookupBesideTheDatabaseTakesTwoPeople"},
	},
	{
		Name:     "nothing is freed while its money is unknown",
		Edits:    []Edit{{"postadjudication/internal/casework/freeing.go", "	case moneyUnknown(f.Snapshot):\n		return refusal.GateReconcileFirst\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestReservedMoneyIsNotFreedWhileItMayMove"},
	},
	{
		Name:     "nothing is freed while a call of any run of the case is out",
		Edits:    []Edit{{"postadjudication/internal/casework/freeing.go", "	for _, r := range all {\n", "	for _, r := range all[:0] {\n"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestNothingIsFreedWhileACallOfTheParentIsOut"},
	},
	{
		Name:     "a request is known as interrupted though the answer to its beginning is lost",
		Edits:    []Edit{{"postadjudication/internal/journal/idempotency.go", "before.Status, before.FirstBegan = int(status.Int64), first.Time", "before.Status = int(status.Int64)"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestWhatAnInterruptedRequestMadeIsFoundThoughItsBeginningIsNotAnswered"},
	},
}
