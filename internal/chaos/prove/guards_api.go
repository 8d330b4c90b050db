package prove

// apiGuards is what guards the doors: who may ask for what, how much of it, and what is taken.
var apiGuards = []Guard{
	{
		Name:     "a submitter reads only what its principal handed over",
		Edits:    []Edit{{"internal/door/requestcontext.go", "if !access.May(c.Roles, access.List) {", "if !access.May(c.Roles, access.List) && false {"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestASubmitterReadsOnlyWhatItsPrincipalSubmitted"},
	},
	{
		Name:     "events leave out what another principal handed over",
		Edits:    []Edit{{"postadjudication/internal/eventlog/log.go", "if at <= after || !may(r.Run) {", "if may != nil && at <= after {"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestASubmitterReadsOnlyWhatItsPrincipalSubmitted"},
	},
	{
		Name:     "job events leave out what another principal enqueued",
		Edits:    []Edit{{"postadjudication/jobs/events.go", " && may(r.Run) {", " && may != nil {"}},
		CaughtBy: Detector{Package: "./internal/ojs", Test: "TestASubmitterReadsOnlyWhatItsPrincipalEnqueued"},
	},
	{
		Name:     "a job that another principal enqueued is not found",
		Edits:    []Edit{{"postadjudication/jobs/status.go", "_, err = casework.PermittedRuns(ctx, j.s.journal, j.tenant, snap)", "_, _ = casework.PermittedRuns(ctx, j.s.journal, j.tenant, snap)"}},
		CaughtBy: Detector{Package: "./internal/ojs", Test: "TestASubmitterReadsOnlyWhatItsPrincipalEnqueued"},
	},
	{
		Name:     "a run that another principal submitted is not found",
		Edits:    []Edit{{"postadjudication/casestatus/status.go", "if _, err := casework.PermittedRuns(ctx, s.Journal, tenant, snap); err != nil {", "if _, err := casework.PermittedRuns(ctx, s.Journal, tenant, snap); err != nil && false {"}},
		CaughtBy: Detector{Package: "./internal/openwop", Test: "TestASubmitterReadsOnlyTheRunsOfItsPrincipal"},
	},
	{
		Name:     "a target that is not configured is refused at submission",
		Edits:    []Edit{{"postadjudication/admission.go", "if !s.applier.Settlements.Targets.Knows(a.target()) {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestATargetThatIsNotConfiguredIsRefused"},
	},
	{
		Name:     "a server beyond this machine is reached with TLS that shows who it is",
		Edits:    []Edit{{"internal/app/connectionsafety.go", "if !r.Protection.Safe() && !r.Trusted {", "if !r.Protection.Safe() && !r.Trusted && false {"}},
		CaughtBy: Detector{Package: "./internal/app", Test: "TestRemoteServersMustAuthenticate"},
	},
	{
		Name:     "a database is for demonstrations or for money",
		Edits:    []Edit{{"postadjudication/opendatabase.go", "case c.Executor == nil || c.Demonstration == of.Demonstration:", "case c.Executor != nil || !of.Demonstration:"}},
		CaughtBy: Detector{Package: "./internal/app", Test: "TestADatabaseIsForDemonstrationsOrForMoneyForEver"},
	},
	{
		Name:     "a key that has ended opens nothing",
		Edits:    []Edit{{"internal/access/key.go", "	case k.ExpiresAt != nil && !now.Before(*k.ExpiresAt):\n		return ErrExpired\n", ""}},
		CaughtBy: Detector{Package: "./internal/access", Test: "TestAnExpiredKeyIsRefusedAtOnce"},
	},
	{
		Name:     "a key opens what its roles may do and nothing else",
		Edits:    []Edit{{"internal/door/auth.go", "	if access.May(c.Roles, action) {", "	if access.May(c.Roles, action) || true {"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestARefusalAboutARunIsRecordedInItsCase"},
	},
	{
		Name:     "asynqmon, which shows all tenants, is for the platform",
		Edits:    []Edit{{"internal/access/action.go", "	Queues:    {Platform},", "	Queues:    {Platform, Operator},"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestAsynqmonAsksForAKey"},
	},
	{
		Name:     "a submitter lists nothing of its tenant",
		Edits:    []Edit{{"internal/access/action.go", "	List:      {Operator, ", "	List:      {Submitter, Operator, "}},
		CaughtBy: Detector{Package: "./internal/access", Test: "TestEveryCellOfTheTable"},
	},
	{
		Name:     "a principal has one pattern, without look-alikes",
		Edits:    []Edit{{"internal/access/principal.go", "case !principals.MatchString(text):", "case !principals.MatchString(text) && false:"}},
		CaughtBy: Detector{Package: "./internal/access", Test: "TestPrincipalsHaveOnePatternAndNoneIsTheMachines"},
	},
	{
		Name:     "no key has a principal that acts without a key",
		Edits:    []Edit{{"internal/access/principal.go", "case slices.Contains(reserved, kind):", "case slices.Contains(reserved, kind) && false:"}},
		CaughtBy: Detector{Package: "./internal/access", Test: "TestPrincipalsHaveOnePatternAndNoneIsTheMachines"},
	},
	{
		Name:     "a member that is given twice is refused",
		Edits:    []Edit{{"internal/strictjson/scan.go", "if p.repeated(name, first, &many) {", "if p.repeated(name, first, &many) && false {"}},
		CaughtBy: Detector{Package: "./internal/strictjson", Test: "TestCheckNamesWhatIsAmbiguous"},
	},
	{
		Name:     "a batch has no more items than it may",
		Edits:    []Edit{{"internal/intake/batch.go", "		if len(out) == items {", "		if len(out) == items && false {"}},
		CaughtBy: Detector{Package: "./internal/intake", Test: "TestABatchThatIsNoneIsRefused"},
	},
	{
		Name:     "an item of a batch is no longer than it may",
		Edits:    []Edit{{"internal/intake/batch.go", "errors.Is(err, errBound) || err == nil && len(text) > length {", "errors.Is(err, errBound) {"}},
		CaughtBy: Detector{Package: "./internal/intake", Test: "TestABatchThatIsNoneIsRefused"},
	},
	{
		Name:     "a key has its share of the streams",
		Edits:    []Edit{{"internal/door/limits.go", "	case s.key > 0 && c.Key", "	case s.key < 0 && c.Key"}},
		CaughtBy: Detector{Package: "./internal/door", Test: "TestQuotasAreDividedAmongKeysAndTenants"},
	},
	{
		Name:     "an address has few unknown keys looked up",
		Edits:    []Edit{{"internal/door/auth.go", "if !d.keys.Uncached(token) || !d.keyFailures.exhausted(from) {", "if !d.keys.Uncached(token) || !d.keyFailures.exhausted(from) || true {"}},
		CaughtBy: Detector{Package: "./internal/door", Test: "TestLookUpsOfKeysThatAreNotThereAreBounded"},
	},
	{
		Name:     "an operator gives a fork no more attempts than the policy",
		Edits:    []Edit{{"internal/api/letters.go", "a.checkForkAttempts(ctx, c, id, policy)", "a.checkForkAttempts(ctx, c, id, nil)"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestAnOperatorGivesAForkNoMoreAttemptsThanThePolicy"},
	},
	{
		Name:     "an operator plans forks with no more attempts than the policy",
		Edits:    []Edit{{"internal/api/bulk.go", "a.checkPlanAttempts(ctx, c, q.Filter.Family, q.Policy)", "a.checkPlanAttempts(ctx, c, q.Filter.Family, nil)"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestAnOperatorGivesAForkNoMoreAttemptsThanThePolicy"},
	},
	{
		Name: "the positions of a tenant reveal nothing of the others",
		Edits: []Edit{{"postadjudication/internal/journal/sequencer.go", "own.last + sum(cardinality(o.seqs)) OVER (PARTITION BY o.tenant ORDER BY o.id),",
			"before.last + sum(cardinality(o.seqs)) OVER (ORDER BY o.id),"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestPositionsTellNothingOfOtherTenants"},
	},
	{
		Name:     "a request forks a dead letter once under its key",
		Edits:    []Edit{{"internal/api/letters.go", "Reason: in.Body.Reason, RequestID: door.RequestID(ctx), Policy", "Reason: in.Body.Reason, Policy"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestWhatAnInterruptedRequestMadeIsNotMadeAgain"},
	},
	{
		Name:     "a request retries a lineage once under its key",
		Edits:    []Edit{{"postadjudication/deadletter/fork.go", "	if request != \"\" {\n		if made", "	if false {\n		if made"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestWhatAnInterruptedRequestMadeIsNotMadeAgain"},
	},
	{
		Name:     "a request makes a plan once under its key",
		Edits:    []Edit{{"internal/api/bulk.go", "Reason: in.Body.Reason, Request: door.RequestID(ctx),", "Reason: in.Body.Reason,"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestWhatAnInterruptedRequestMadeIsNotMadeAgain"},
	},
	{
		Name:     "a request plans to free money once under its key",
		Edits:    []Edit{{"internal/api/cases.go", ", Request: door.RequestID(ctx),", ","}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestWhatAnInterruptedRequestMadeIsNotMadeAgain"},
	},
	{
		Name:     "a request plans a finding once under its key",
		Edits:    []Edit{{"internal/api/letters.go", "Reference: b.Reference, RequestID: door.RequestID(ctx),", "Reference: b.Reference,"}},
		CaughtBy: Detector{Package: "./internal/api", Test: "TestWhatAnInterruptedRequestMadeIsNotMadeAgain"},
	},
}
