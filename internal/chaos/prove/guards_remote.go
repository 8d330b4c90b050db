package prove

// remoteGuards is what guards adjudications that remote workers execute: what an answer may say of the
// money, whose it is, and when nobody may pay again.
var remoteGuards = []Guard{
	{
		Name:     "who decides by another key, made before the queue paid, fetches no order",
		Edits:    []Edit{{"internal/ojs/workers.go", "mixed := (*access.DutiesError)(nil); errors.As(err, &mixed) {", "mixed := (*access.DutiesError)(nil); errors.As(err, &mixed) && false {"}},
		CaughtBy: Detector{Package: "./internal/ojs", Test: "TestOnePrincipalDoesNotSubmitAndPayByKeysOfBefore"},
	},
	{
		Name:     "what a lookup found is not the word of an attempt whose own call paid nothing",
		Edits:    []Edit{{"postadjudication/internal/binding/settlement.go", "(p.Lookup == \"\" || !mayHavePaid)", "(p.Lookup == \"\" || !mayHavePaid || true)"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/binding", Test: "TestAPaymentThatALookupFoundIsTheWordOfTheOnlyCall"},
	},
	{
		Name:     "a denial of what the same attempt stated contradicts it, whoever stated it first",
		Edits:    []Edit{{"postadjudication/internal/casework/contradictions.go", "!recorded.IsStatedBy(run.ID, tr.Run.Attempt):", "recorded.StatedBy != run.ID || recorded.Statements[0].Attempt != tr.Run.Attempt:"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAWorkerThatDeniesWhatItStatedIsOnRecord"},
	},
	{
		Name:     "a claim of an order reads what is unknown of its case",
		Edits:    []Edit{{"postadjudication/internal/casework/remoteruns.go", "if errors.Is(err, errCaseRunsStale) {", "if errors.Is(err, errCaseRunsStale) && false {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnOrderOfAHigherGenerationIsGivenAgain"},
	},
	{
		Name:     "no job enters a payment queue",
		Edits:    []Edit{{"postadjudication/internal/casework/targets.go", "if t.Pays(queue) {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestNothingButAdjudicationsEntersAPaymentQueue"},
	},
	{
		Name:     "no adjudication names a queue that does not pay",
		Edits:    []Edit{{"postadjudication/internal/casework/targets.go", "	_, known := t[target]\n	return known\n", "	_, known := t[target]\n	return known || escrow.IsRemote(target)\n"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAQueueThatCannotBeIsRefused"},
	},
	{
		Name:     "from a payment queue only adjudications are fetched, and none from another queue",
		Edits:    []Edit{{"postadjudication/internal/journal/leaseclaims.go", "AND (r.operation_key IS NOT NULL) = w.pays", "AND w.pays IS NOT NULL"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestWhatWaitsInTheWrongQueueIsGivenToNobody"},
	},
	{
		Name:     "a key fetches from its queues",
		Edits:    []Edit{{"internal/access/duty.go", "return k.Names(queue) && len(k.decides()) == 0", "return true"}},
		CaughtBy: Detector{Package: "./internal/ojs", Test: "TestAKeyFetchesFromItsQueuesOnly"},
	},
	{
		Name:     "who pays decides nothing",
		Edits:    []Edit{{"postadjudication/internal/journal/keys.go", "checkDuties(ctx, tx, &key, prefix); err != nil {", "checkDuties(ctx, tx, &key, prefix); err != nil && !errors.As(err, new(*access.DutiesError)) {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestNobodyPaysAndDecides"},
	},
	{
		Name:     "a key gives only queues that it has",
		Edits:    []Edit{{"internal/api/keys.go", "if len(beyond) == 0 && len(others) == 0 && !longer {", "if len(beyond) == 0 && !longer {"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestNobodyMakesAKeyOfQueuesThatTheirOwnLacks"},
	},
	{
		Name:     "no other principal ends a lease",
		Edits:    []Edit{{"background/lease/lease.go", "return l.Principal == principal", "return true"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnotherPrincipalAnswersForNoLease"},
	},
	{
		Name:     "no other principal answers for an attempt of an adjudication",
		Edits:    []Edit{{"postadjudication/jobs/adjudications.go", "if one.Run == r.ID && one.Actor != j.actor {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnotherPrincipalAnswersForNoEndedLease"},
	},
	{
		Name:     "what the holder before paid is on record while another principal holds the order",
		Edits:    []Edit{{"background/fetch.go", "errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotHolder) || errors.Is(err, ErrConflict); !late", "errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict); !late"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAPrincipalTellsThePaymentsOfItsOwnAttempts"},
	},
	{
		Name:     "no other principal extends a lease",
		Edits:    []Edit{{"postadjudication/internal/journal/heldleases.go", "AND ` + leasePrincipal + ` = h.principal`", "AND ` + leasePrincipal + ` || h.principal <> ''`"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnotherPrincipalAnswersForNoLease"},
	},
	{
		Name:     "an answer of another principal is on record",
		Edits:    []Edit{{"postadjudication/jobs/workers.go", "refuseOthers(ctx, j, asked, snap.Run.ID)", "refuseOthers(ctx, j, asked)"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnotherPrincipalAnswersForNoLease"},
	},
	{
		Name:     "a heartbeat of another principal is on record",
		Edits:    []Edit{{"postadjudication/jobs/workers.go", "\"heartbeat\", slices.Collect(maps.Values(runs))...)", "\"heartbeat\")"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnotherPrincipalAnswersForNoLease"},
	},
	{
		Name:     "the key of a fetch is its principal's",
		Edits:    []Edit{{"postadjudication/internal/journal/heldleases.go", "AND $3 = ` + leasePrincipal + ` AND", "AND $3 || ` + leasePrincipal + ` <> '' AND"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestTheKeyOfAFetchIsThatOfItsPrincipal"},
	},
	{
		Name:     "a fetch names its principal",
		Edits:    []Edit{{"postadjudication/jobs/workers.go", "errors.Join(f.validate(), validate.Identifier(\"actor\", j.actor, 128))", "f.validate()"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAFetchNamesItsPrincipal"},
	},
	{
		Name:     "a lease without a principal is that of its receipt",
		Edits:    []Edit{{"postadjudication/internal/journal/heldleases.go", "ORDER BY e.seq DESC LIMIT 1), '') END`", "ORDER BY e.seq DESC LIMIT 0), '') END`"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestALeaseWithoutAPrincipalIsThatOfItsReceipt"},
	},
	{
		Name:     "the principal of a lease is compared with its receipt",
		Edits:    []Edit{{"postadjudication/internal/trail/mismatches.go", " AND l.principal IN ('', e.actor)", ""}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestTheAuditFindsALeaseThatWasChanged"},
	},
	{
		Name:     "no door forks an adjudication of remote workers to another payer",
		Edits:    []Edit{{"postadjudication/internal/casework/fork.go", "r.Family == Family && r.Remote && queue != \"\" && queue != r.Queue {", "false {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestNoDoorForksAnOrderToAnotherPayer"},
	},
	{
		Name:     "a queue that was changed in the database makes no other workers the payer",
		Edits:    []Edit{{"postadjudication/internal/binding/terms.go", "case !s.Closed && !isOfPayer(s, t.Target):", "case false:"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnOrderOfAnotherQueueIsGivenToNobody"},
	},
	{
		Name:     "the end of a lease is an unknown outcome",
		Edits:    []Edit{{"background/decide.go", "	if run.MovesMoney() {\n		return lostPaymentEnding", "	if run.MovesMoney() {\n		res.Class = NotExecuted\n		return lostPaymentEnding"}},
		CaughtBy: Detector{Package: "./background", Test: "TestTheEndOfALeaseOfMoneyIsALostWorker"},
	},
	{
		Name:     "the call of a lease that ended is outstanding",
		Edits:    []Edit{{"background/decide.go", "charge: ChargeRecovery, result: *res, next: now, outstanding: true}", "charge: ChargeRecovery, result: *res, next: now}"}},
		CaughtBy: Detector{Package: "./background", Test: "TestTheEndOfALeaseOfMoneyIsALostWorker"},
	},
	{
		Name:     "a handed back attempt is cancelled only if nothing was paid",
		Edits:    []Edit{{"background/decide.go", "	if run.CancelRequested && provenUnpaid(run, res) {\n		return ending{subtype: receipts.Cancelled, result: *res}\n	}\n	return ending{subtype: receipts.AttemptInterrupted, result: *res, next: now, handedBack", "	if run.CancelRequested {\n		return ending{subtype: receipts.Cancelled, result: *res}\n	}\n	return ending{subtype: receipts.AttemptInterrupted, result: *res, next: now, handedBack"}},
		CaughtBy: Detector{Package: "./background", Test: "TestARemoteAttemptOfUnknownOutcomeNeedsNoLookup"},
	},
	{
		Name:     "what a worker pays after its lease is recorded",
		Edits:    []Edit{{"background/fetch.go", "errors.Is(err, ErrConflict); !late {", "errors.Is(err, ErrConflict); !late || true {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestALateAckSettles"},
	},
	{
		Name:     "an attempt is named where another can be meant",
		Edits:    []Edit{{"postadjudication/jobs/adjudications.go", "	switch len(meant) {\n	case 1:", "	switch len(meant) {\n	case 1, 2:"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnOrderIsRepeatedWithinTheLifetimeOfItsKey"},
	},
	{
		Name:     "a late answer is the worker's that had the attempt",
		Edits:    []Edit{{"postadjudication/jobs/adjudications.go", "(a.Worker == \"\" || p.Worker == a.Worker || p.Worker == lease.Unnamed)", "(a.Worker == \"\" || p.Worker != \"\")"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestALateAckSettles"},
	},
	{
		Name:     "a nack is unknown unless it says not executed",
		Edits:    []Edit{{"postadjudication/jobs/adjudications.go", "	if statesNotExecuted(why) {\n		out.Class", "	if statesNotExecuted(why) || retryable {\n		out.Class"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestANackIsUnknownUnlessItSaysNotExecuted"},
	},
	{
		Name:     "an order is handed back only with the word that it was not executed",
		Edits:    []Edit{{"postadjudication/jobs/workers.go", "		if adjudication != nil && !statesNotExecuted(why) {", "		if adjudication != nil && !statesNotExecuted(why) && false {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestANackIsUnknownUnlessItSaysNotExecuted"},
	},
	{
		Name:     "an ack is in the currency of its adjudication",
		Edits:    []Edit{{"postadjudication/jobs/adjudications.go", "	case *said.Moved.Currency != t.Currency:", "	case *said.Moved.Currency != t.Currency && false:"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnAckThatDoesNotSayWhatWasPaidIsRefused"},
	},
	{
		Name:     "an ack names a sum that makes sense",
		Edits:    []Edit{{"postadjudication/jobs/adjudications.go", "	case !casework.IsBelievable(*said.Moved.Minor, t.Amount):", "	case *said.Moved.Minor == 0:"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnAckThatDoesNotSayWhatWasPaidIsRefused"},
	},
	{
		Name:     "no order follows an unknown outcome beyond the lifetime of its key",
		Edits:    []Edit{{"postadjudication/internal/casework/remotesettlements.go", "func (e remoteExecutor) KeyLifetime() time.Duration { return e.RemoteWorkers.KeyLifetime }", "func (e remoteExecutor) KeyLifetime() time.Duration { return escrow.Forever }"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestASilentWorkerLeavesAnUnknownOutcome"},
	},
	{
		Name:     "nobody can say for how long a remote worker may pay",
		Edits:    []Edit{{"postadjudication/internal/casework/remotesettlements.go", "	if e.RemoteWorkers.InFlight <= 0 {\n		return escrow.Forever", "	if e.RemoteWorkers.InFlight <= 0 {\n		return 0"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestNobodyCanSayForHowLongARemoteWorkerMayPay"},
	},
	{
		Name:     "a run that nobody may fetch any more does not wait",
		Edits:    []Edit{{"background/leasereaper.go", "errors.Join(r.endExpired(ctx), r.endUnrepeatable(ctx))", "r.endExpired(ctx)"}, {"background/leasereaper.go", "// endUnrepeatable ends runs that wait", "var _ = (*leaseReaper).endUnrepeatable\n\n// endUnrepeatable ends runs that wait"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestASilentWorkerLeavesAnUnknownOutcome"},
	},
	{
		Name:     "the dead letter of an adjudication is not deleted by one person",
		Edits:    []Edit{{"postadjudication/jobs/delete.go", "	if isAdjudication(&letter.Run) {\n		return ErrNeedsPlan", "	if isAdjudication(&letter.Run) && false {\n		return ErrNeedsPlan"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestASilentWorkerLeavesAnUnknownOutcome"},
	},
	{
		Name:     "a repeated fetch gets what the first one got",
		Edits:    []Edit{{"postadjudication/internal/journal/leaseclaims.go", "	if requests[0].isKeyed() {\n", "	if requests[0].isKeyed() && false {\n"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestARepeatedFetchGetsTheSameLeases"},
	},
	{
		Name:     "a repeated fetch does not keep its lease",
		Edits:    []Edit{{"background/leasereaper.go", "known && o.lease.Attempt == c.Lease.Attempt {", "known && o.lease.Attempt == c.Lease.Attempt && false {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestARepeatedFetchDoesNotKeepItsLease"},
	},
	{
		Name:     "the mark of an ended lease names its attempt",
		Edits:    []Edit{{"postadjudication/internal/journal/heldleases.go", "WHERE run_id = $1 AND attempt = $4 AND (version = $2", "WHERE run_id = $1 AND $4::int IS NOT NULL AND (version = $2"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestTheEndOfALeaseIsNotThatOfTheNextAttempt"},
	},
	{
		Name:     "the end of a lease ends no later attempt",
		Edits:    []Edit{{"background/leasereaper.go", "errors.Is(err, ErrNotFound) || err == nil && now.Attempt != l.Attempt {", "errors.Is(err, ErrNotFound) {"}},
		CaughtBy: Detector{Package: "./background", Test: "TestTheEndOfALeaseEndsNoLaterAttempt"},
	},
	{
		Name:     "a heartbeat makes no lease of money shorter",
		Edits:    []Edit{{"postadjudication/internal/journal/heldleases.go", "THEN greatest(l.length_ms, $5) ELSE $5 END", "THEN $5 ELSE $5 END"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAHeartbeatDoesNotEndALeaseBeforeItsOrderMayNoLongerBeExecuted"},
	},
	{
		Name:     "a repeated fetch gives no altered order",
		Edits:    []Edit{{"postadjudication/internal/casework/remoteruns.go", "		return altered != nil\n", "		return altered != nil && false\n"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestARepeatedFetchGivesNoAlteredOrder"},
	},
	{
		Name:     "nothing is fetched from a paused queue",
		Edits:    []Edit{{"postadjudication/internal/journal/leaseclaims.go", "k.target = 'queue:' || w.queue AND k.state <> 'closed')", "k.target = 'queue:' || w.queue AND false)"}},
		CaughtBy: Detector{Package: "./internal/ojs", Test: "TestAPausedQueueGivesNoJob"},
	},
	{
		Name:     "no job has the id of an adjudication",
		Edits:    []Edit{{"postadjudication/jobs/enqueue.go", "			return &DuplicateError{Existing: statusOf(taken.Run)}\n", "			_ = taken\n"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAJobDoesNotTakeTheAnswersOfAnAdjudication"},
	},
	{
		Name:     "a unique job that is enqueued again is refused by itself",
		Edits:    []Edit{{"postadjudication/jobs/enqueue.go", "err == nil && own.Case.ID == holder.Case.ID:\n", "err == nil:\n"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAUniqueJobThatIsEnqueuedAgainIsRefusedByItself"},
	},
	{
		Name:     "a request retries a dead letter once, however slow its handlers are",
		Edits:    []Edit{{"internal/ojs/deadletters.go", "err := q.jobs.MadeBy(q.Context(), found, asked)", "err := q.jobs.MadeBy(q.Context(), found, asked+\"?\")"}},
		CaughtBy: Detector{Package: "./internal/ojs", Test: "TestASlowRetryIsNotMadeASecondTime"},
	},
	{
		Name:     "a cancel is in the name of who asked for it",
		Edits:    []Edit{{"background/fetch.go", "	if end.subtype != receipts.Cancelled || run.CancelBy == \"\" {", "	if end.subtype != receipts.Cancelled || run.CancelBy == \"\" || true {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestCancellingAHeldAdjudicationAsks"},
	},
}
