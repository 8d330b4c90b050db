package prove

import "slices"

// evidenceGuards is what guards what is kept.
var evidenceGuards = []Guard{
	{
		Name:     "a measurement of the clock that took longer than the best is not followed",
		Edits:    []Edit{{"background/clock.go", "		m = m.near(best)\n", ""}},
		CaughtBy: Detector{Package: "./background", Test: "TestClockFilter"},
	},
	{
		Name:     "the identity of a database, and its mark for demonstrations, never change",
		Edits:    []Edit{{"internal/schema/stored/triggers.go", "BEFORE UPDATE OF one, id, demonstration", "BEFORE UPDATE OF one"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestWhatASubmissionFixedIsRefusedToChange"},
	},
	{
		Name:     "what protects evidence in the database is compared by what it does",
		Edits:    []Edit{{"internal/schema/stored/guards.go", "!found || definition != g.Definition && g.normalize(definition) != g.normalize(g.Definition)", "!found || definition == \"\""}},
		CaughtBy: Detector{Package: "./internal/schema", Test: "TestWhatProtectsEvidenceIsComparedByWhatItDoes"},
	},
	{
		Name:     "a process that runs finds what protects evidence changed",
		Edits:    []Edit{{"postadjudication/databasemonitor.go", "		check = schema.RecheckGuards\n", "		check = schema.RecheckTriggers\n"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestNothingIsClaimedWhileAGuardIsChanged"},
	},
	{
		Name:     "readers of events hear that the end of the order was lost",
		Edits:    []Edit{{"postadjudication/internal/eventlog/trace.go", "len(found) == 1 && found[0] == newest", "true"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestReadersHearOfALostEndOfTheOrder"},
	},
	{
		Name:     "the newest run of a case is the last that was submitted, whatever the clocks said",
		Edits:    []Edit{{"postadjudication/audit/case.go", "r.ID == history.Order[n-1] && r.Letter", "r.ID == c.Runs[len(c.Runs)-1].ID && r.Letter"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestHonestHistoriesAfterAClockWasSetRight"},
	},
	{
		Name:     "the runs of a case are read in the order in which they were submitted",
		Edits:    []Edit{{"postadjudication/internal/journal/cases.go", "ORDER BY made.seq, r.id", "ORDER BY r.id"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestHonestHistoriesAfterAClockWasSetRight"},
	},
	{
		Name:     "a plan is not stored without its items",
		Edits:    []Edit{{"postadjudication/internal/journal/plans/state.go", "err := lockItems(ctx, tx, b.ID); err != nil || !there {", "err := lockItems(ctx, tx, b.ID); err != nil || !there && false {"}},
		CaughtBy: Detector{Package: "./postadjudication/bulk", Test: "TestAPlanThatIsTakenForAbandonedIsNotStoredWithoutItsItems"},
	},
	{
		Name:     "free text is redacted before it is kept",
		Edits:    []Edit{{"postadjudication/internal/validate/text.go", "	s = redact.Text(s)\n	if len(s) > limit {", "	_ = redact.Text\n	if len(s) > limit {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestSecretsStayOutOfDatabaseAndLog"},
	},
	{
		Name:     "a secret in a payload is refused at submission",
		Edits:    []Edit{{"postadjudication/internal/validate/text.go", "redact.Find(p); found {", "redact.Find(p); found && false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestSecretsInAPayloadAreRefusedAtSubmission"},
	},
	{
		Name:     "a secret in an id is refused at submission",
		Edits:    []Edit{{"postadjudication/internal/validate/text.go", "	if redact.ContainsSecret(id) {", "	if redact.ContainsSecret(id) && false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestSecretsAreRefusedAtSubmissionInEveryField"},
	},
	{
		Name:     "a cut text keeps no half of a secret",
		Edits:    []Edit{{"postadjudication/escrowhttp/answer.go", "		raw = []byte(redact.TrimPartial(string(raw)))", "		_ = redact.TrimPartial"}},
		CaughtBy: Detector{Package: "./postadjudication/escrowhttp", Test: "TestATruncatedErrorTextKeepsNoHalfOfASecret"},
	},
	{
		Name:     "an ambiguous answer proves nothing",
		Edits:    []Edit{{"postadjudication/escrowhttp/answer.go", "if err := strictjson.Decode(bytes.TrimPrefix(raw, byteOrderMark), &b); err != nil {", "if err := json.Unmarshal(bytes.TrimPrefix(raw, byteOrderMark), &b); err != nil {"}, {"postadjudication/escrowhttp/answer.go", "	\"github.com/recourse-dev/recourse/internal/strictjson\"\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication/escrowhttp", Test: "TestAnAmbiguousAnswerIsUnknown"},
	},
	{
		Name:     "a chain is verified link by link",
		Edits:    []Edit{{"receipts/verify.go", "	if r.Link != next.Link {", "	if false {"}},
		CaughtBy: Detector{Package: "./receipts", Test: "TestEveryFieldOfEveryReceiptIsGuarded"},
	},
	{
		Name:     "a run of another tenant is not found",
		Edits:    []Edit{{"postadjudication/internal/casework/apply.go", "(tenant == \"\" || seen.Run.Tenant != tenant) {", "tenant == \"\" {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestARunOfAnotherTenantIsNotThere"},
	},
	{
		Name:     "the request that is sent is the one that was submitted",
		Edits:    []Edit{{"postadjudication/internal/binding/terms.go", "case sha256.Sum256(s.Request) != t.RequestDigest:\n		return Altered(\"another digest of the request\")", "case false:\n		return Altered(\"another digest of the request\")"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnAlteredRequestIsNeverSent"},
	},
	{
		Name:     "it is sent under the operation key that was submitted",
		Edits:    []Edit{{"postadjudication/internal/binding/terms.go", "case t.OperationKey != operationKeyOf(t) || t.OperationKey != s.OperationKey:", "case false:"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnAlteredRequestIsNeverSent"},
	},
	{
		Name:     "it is sent to the escrow service that was submitted",
		Edits:    []Edit{{"postadjudication/internal/binding/terms.go", "	case t.Target != s.Target:", "	case false:"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnAlteredRequestIsNeverSent"},
	},
	{
		Name:     "the payload of a task that is run is the one that was submitted",
		Edits:    []Edit{{"postadjudication/internal/binding/terms.go", "if sha256.Sum256(s.Request) != t.RequestDigest {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnAlteredTaskIsNotRun"},
	},
	{
		Name:     "the request of a submission is never changed",
		Edits:    []Edit{{"internal/schema/stored/triggers.go", "\"BEFORE UPDATE OF id, case_id, tenant, family, retry_key, operation_key, queue, target, parent_id, remote, priority, expires_at\"", "\"BEFORE UPDATE OF id\""}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestWhatASubmissionFixedIsRefusedToChange"},
	},
	{
		Name:     "what an escrow holds is never changed once a case names it",
		Edits:    []Edit{{"internal/schema/migrations/00100_schema.sql", "IF EXISTS (SELECT FROM recourse.cases c WHERE c.escrow_id = OLD.id) THEN", "IF false THEN"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestWhatASubmissionFixedIsRefusedToChange"},
	},
	{
		Name:     "the audit counts the dead letters of each day",
		Edits:    []Edit{{"postadjudication/internal/trail/mismatches.go", "stored.FacetGroupDayDiffers + `) d WHERE $2::uuid IS NULL", "stored.FacetGroupDayDiffers + `) d WHERE false"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestTamperingAndWhatDetectsIt"},
	},
	{
		Name:     "a rebuild corrects the counts of days",
		Edits:    []Edit{{"postadjudication/internal/journal/search/rebuild.go", "SELECT facet_group, day, n, risk, tries FROM d WHERE n IS NOT NULL", "SELECT facet_group, day, n, risk, tries FROM d WHERE false"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestARebuildRepairsTheCountsOfDays"},
	},
	{
		Name:     "receipts of a case keep their places in the order of events",
		Edits:    []Edit{{"postadjudication/internal/trail/order.go", " OR p.number < p.before\n", "\n"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestReceiptsOfACaseThatChangedPlacesAreFound"},
	},
	{
		Name:     "the secret of an access key is that of its receipt",
		Edits:    []Edit{{"postadjudication/audit/settings.go", "	if t.digest != \"\" {", "	if t.digest != \"\" && false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAKeyThatIsNotWhatItsReceiptsSayIsFound"},
	},
}

// Guards is the table.
var Guards = slices.Concat(storeGuards, engineGuards, moneyGuards, bookingGuards, peopleGuards, escrowGuards, evidenceGuards, apiGuards, jobGuards, remoteGuards, openwopGuards, webhookGuards)
