package prove

// jobGuards is what guards jobs: who answers for them, how often one is given, and what is retried.
var jobGuards = []Guard{
	{
		Name:     "a lease is its worker's",
		Edits:    []Edit{{"background/fetch.go", "(held.Worker == \"\" || by.Worker == \"\" ||", "(true || held.Worker == \"\" || by.Worker == \"\" ||"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestOnlyTheHolderAnswersForAJob"},
	},
	{
		Name:     "a remembered lease is no reason to refuse the holder",
		Edits:    []Edit{{"background/fetch.go", "run.Tenant != held.Tenant || !isHeldBy(held, &run, by) {", "run.Tenant != held.Tenant {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestTheHolderAnswersAfterALeaseThatEnded"},
	},
	{
		Name:     "an attempt ends while its operation key is recognised",
		Edits:    []Edit{{"postadjudication/internal/casework/remotesettlements.go", "		return min(MaxLease, recognised), nil\n", "		return MaxLease, nil\n"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnAttemptEndsWhileItsKeyIsRecognised"},
	},
	{
		Name:     "an attempt after an unknown one ends while its operation key is recognised",
		Edits:    []Edit{{"postadjudication/internal/casework/remotesettlements.go", "	return min(MaxLease, run.FirstSentAt", "	return max(MaxLease, run.FirstSentAt"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnAttemptAfterAnUnknownOneEndsWhileItsKeyIsRecognised"},
	},
	{
		Name:     "an adjudication whose operation key nobody recognises is given once",
		Edits:    []Edit{{"postadjudication/internal/casework/remoteruns.go", "		case !begun[c.Run.ID] &&", "		case false && !begun[c.Run.ID] &&"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestARepeatedFetchGivesNoAdjudicationWhoseKeyIsNotRecognised"},
	},
	{
		Name:     "fetches with one key are answered one after another",
		Edits:    []Edit{{"postadjudication/internal/journal/heldleases.go", "SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(31) || encode($2, 'hex'), 12))", "SELECT hashtextextended($1 || chr(31) || encode($2, 'hex'), 12)"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAFetchThatIsRepeatedAtAnotherServerAtOnceGetsTheSameJob"},
	},
	{
		Name:     "a claim that can't be recorded stops no other",
		Edits:    []Edit{{"postadjudication/internal/journal/leaseclaims.go", "[]writeClaims{applyLeaseClaims, applyEachLeaseClaim}", "[]writeClaims{applyLeaseClaims, applyLeaseClaims}"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAnOrderWhoseClaimCanNotBeRecordedStopsNoOther"},
	},
	{
		Name:     "a run of no case stops no other",
		Edits:    []Edit{{"postadjudication/internal/journal/leaseclaims.go", "AND (SELECT true FROM recourse.cases c WHERE c.id = r.case_id)", ""}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestARunOfNoCaseStopsNoOther"},
	},
	{
		Name:     "a marked lease is not extended",
		Edits:    []Edit{{"postadjudication/internal/journal/heldleases.go", "WHERE l.tenant = h.tenant AND l.ended = '' AND", "WHERE l.tenant = h.tenant AND"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestAHeartbeatExtendsNoLeaseThatIsMarked"},
	},
	{
		Name:     "a retry makes no second live holder of a fingerprint",
		Edits:    []Edit{{"postadjudication/internal/journal/jobs.go", "	if err == nil && held {", "	if err == nil && held && false {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestARetryDoesNotMakeTwoLiveHolders"},
	},
	{
		Name:     "a retry of many takes both actions",
		Edits:    []Edit{{"internal/door/mux.go", "	if route.Also != \"\" {", "	if route.Also != \"\" && false {"}},
		CaughtBy: Detector{Package: "./internal/ojs", Test: "TestEveryRoleOfEveryOperation"},
	},
	{
		Name:     "a worker's key only works",
		Edits:    []Edit{{"internal/access/action.go", "	Read:      {Submitter, Operator,", "	Read:      {Submitter, Worker, Operator,"}},
		CaughtBy: Detector{Package: "./internal/access", Test: "TestEveryCellOfTheTable"},
	},
	{
		Name:     "a bulk retry over Open Job Spec needs to be confirmed",
		Edits:    []Edit{{"internal/ojs/spec/filter.go", "	if confirm, _ := r.flag(\"confirm\"); !confirm {", "	if confirm, given := r.flag(\"confirm\"); !confirm && given {"}},
		CaughtBy: Detector{Package: "./internal/ojs/spec", Test: "TestBulkRetries"},
	},
	{
		Name:     "a unique job replaces none of another principal",
		Edits:    []Edit{{"postadjudication/jobs/enqueue.go", "if err := mayReplace(holder.Run.ID); err != nil {", "if err := mayReplace(holder.Run.ID); err != nil && false {"}},
		CaughtBy: Detector{Package: "./internal/ojs", Test: "TestAReplacementCancelsNoJobOfAnotherPrincipal"},
	},
	{
		Name:     "who may not cancel replaces only its principal's jobs",
		Edits:    []Edit{{"internal/door/requestcontext.go", "if !access.May(c.Roles, access.Cancel) {", "if !access.May(c.Roles, access.List) {"}},
		CaughtBy: Detector{Package: "./internal/ojs", Test: "TestAReplacementCancelsNoJobOfAnotherPrincipal"},
	},
	{
		Name:     "batches of jobs leave connections to other tenants",
		Edits:    []Edit{{"postadjudication/internal/journal/jobs.go", "tenantlimit.New(maxSubmissionBatches, 1)", "tenantlimit.New(1000, 1000)"}},
		CaughtBy: Detector{Package: "./internal/ojs", Test: "TestBatchesTakeTurns"},
	},
	{
		Name:     "a retry waits for the lock of its fingerprint",
		Edits:    []Edit{{"postadjudication/internal/journal/jobs.go", "	for _, next := range names {", "	for _, next := range names[:0] {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestARetryWaitsForTheLockOfItsFingerprint"},
	},
	{
		Name:     "a fingerprint is held for its time only",
		Edits:    []Edit{{"postadjudication/internal/journal/jobs.go", "r.live AND (u.until IS NULL OR u.until > $2)", "r.live AND $2::timestamptz IS NOT NULL"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestARetryIsNotRefusedForAFingerprintThatIsFree"},
	},
	{
		Name:     "changes are applied to the dead letter that they were made for",
		Edits:    []Edit{{"postadjudication/jobs/retry.go", " || !run.IsZero() && snap.Run.ID != run) {", ") {"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestARetryIsOfTheDeadLetterThatItsChangesWereMadeFor"},
	},
	{
		Name:     "tenants do not count towards each other's limit of dead jobs",
		Edits:    []Edit{{"postadjudication/internal/journal/letters.go", "o.tenant = r.tenant AND ", ""}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestRetentionCountsEachTenantAlone"},
	},
	{
		Name:     "queues do not count towards each other's limit of dead jobs",
		Edits:    []Edit{{"postadjudication/internal/journal/letters.go", "letterRowsOverCountSQL(\"o.queue = r.queue AND \")", "letterRowsOverCountSQL(\"\")"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestRetentionKeepsTheNewestOfEachQueue"},
	},
	{
		Name:     "letters that are retried during a round leave others within the count",
		Edits:    []Edit{{"postadjudication/retention/pruner.go", "return 1 + int(over/(20*pruneBatch))", "return 64"}},
		CaughtBy: Detector{Package: "./postadjudication/retention", Test: "TestLettersRetriedDuringARoundLeaveOthersWithinTheCount"},
	},
	{
		Name:     "what a worker returned is compared with its receipt",
		Edits:    []Edit{{"postadjudication/audit/columns.go", "	d.compare(\"digest of the output\", r.OutputDigest, t.outputDigest)\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestTheAuditFindsChangedColumnsOfJobs"},
	},
	{
		Name:     "the priority of a job is compared with its receipt",
		Edits:    []Edit{{"postadjudication/audit/columns.go", "	d.compare(\"priority\", r.Priority, p.Priority)\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestTheAuditFindsChangedColumnsOfJobs"},
	},
}
