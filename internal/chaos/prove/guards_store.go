package prove

// storeGuards is what guards the statements that write.
var storeGuards = []Guard{
	{
		Name:     "a submission enters a transaction of the service's own database only",
		Edits:    []Edit{{"postadjudication/internal/journal/database.go", "if theirs != ours {", "if false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestSubmitTxRefusesATransactionOfAnotherDatabase"},
	},
	{
		Name:     "a session commits durably, whatever the defaults of the database and the role are",
		Edits:    []Edit{{"postadjudication/internal/journal/pg/pool.go", "out.WriteString(sessionSQL)", "out.WriteString(`SELECT 1`)"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestNoDefaultWeakensASession"},
	},
	{
		Name:     "a submission in the caller's transaction makes its commit durable",
		Edits:    []Edit{{"postadjudication/internal/journal/database.go", "set_config('synchronous_commit', 'on', true)", "''"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestSubmitTxMakesTheCallersCommitDurable"},
	},
	{
		Name: "a transition is decided on the newest head of its case",
		Edits: []Edit{
			{"postadjudication/internal/journal/transitionsql.go",
				"WHERE c.last_seq = b.seq AND c.last_link = b.link AND r.case_id = b.case_id", "WHERE r.case_id = b.case_id"},
			{"postadjudication/internal/journal/transitionsql.go",
				"  WHERE c.last_seq = b.seq AND c.last_link = b.link\n  ORDER BY c.id FOR NO KEY UPDATE OF c /*skip*/", "  ORDER BY c.id FOR NO KEY UPDATE OF c /*skip*/"},
		},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestATransitionDecidedOnAnOlderHeadIsDecidedAgain/narrow"},
	},
	{
		Name: "a transition is decided on the newest head of its case (wide statement only)",
		Edits: []Edit{
			{"postadjudication/internal/journal/transitionsql.go",
				"  WHERE c.last_seq = b.seq AND c.last_link = b.link\n  ORDER BY c.id FOR NO KEY UPDATE OF c /*skip*/", "  ORDER BY c.id FOR NO KEY UPDATE OF c /*skip*/"},
		},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestATransitionDecidedOnAnOlderHeadIsDecidedAgain/wide"},
	},
	{
		Name: "the claim's token, attempt and state",
		Edits: []Edit{
			{"postadjudication/internal/journal/transitionsql.go", "r.state = b.state AND r.attempt_count = b.attempt AND r.token IS NOT DISTINCT FROM b.token AND", ""},
			{"postadjudication/internal/journal/transitionsql.go", "r.state = u.state AND r.attempt_count = u.attempt AND r.token IS NOT DISTINCT FROM u.token AND", ""},
			{"postadjudication/internal/journal/transitionsql.go",
				"WHERE c.last_seq = b.seq AND c.last_link = b.link AND r.case_id = b.case_id", "WHERE r.case_id = b.case_id"},
			{"postadjudication/internal/journal/transitionsql.go",
				"  WHERE c.last_seq = b.seq AND c.last_link = b.link\n  ORDER BY c.id FOR NO KEY UPDATE OF c /*skip*/", "  ORDER BY c.id FOR NO KEY UPDATE OF c /*skip*/"},
		},
		Redundant: "the head of the case",
		CaughtBy:  Detector{Package: "./postadjudication/internal/journal", Test: "TestTwoTransitionsOfOneRunRace"},
	},
	{
		Name:     "a claim needs its session, alive (narrow statement)",
		Edits:    []Edit{{"postadjudication/internal/journal/transitionsql.go", "b.session IN (SELECT id FROM alive) AND ", ""}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestAClaimNeedsItsSessionAlive/narrow"},
	},
	{
		Name:     "a claim needs its session, alive (wide statement)",
		Edits:    []Edit{{"postadjudication/internal/journal/transitionsql.go", "u.session IN (SELECT id FROM alive) AND ", ""}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestAClaimNeedsItsSessionAlive/wide"},
	},
	{
		Name:     "nothing is claimed while a circuit breaker is open (narrow statement)",
		Edits:    []Edit{{"postadjudication/internal/journal/transitionsql.go", " AND NOT EXISTS (SELECT FROM recourse.circuit_breakers k WHERE k.state <> 'closed')", ""}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestClaimsAreGuardedByTheBreaker"},
	},
	{
		Name:     "a circuit breaker blocks the claims of its runs",
		Edits:    []Edit{{"postadjudication/internal/journal/transitionsql.go", " AND u.run NOT IN (SELECT id FROM blocked)", ""}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestClaimsAreGuardedByTheBreaker"},
	},
	{
		Name:     "the process that raises the version of a circuit breaker leads it",
		Edits:    []Edit{{"postadjudication/internal/journal/breakers.go", "AND version = $4 - 1 AND state = $8", "AND state = $8"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestClaimsAreGuardedByTheBreaker"},
	},
	{
		Name:     "a tenant gets one receipt of an opening",
		Edits:    []Edit{{"postadjudication/internal/journal/breakers.go", "err != nil || row.RecordedOpening >= now.Openings {", "err != nil {"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestATenantsTrailRecordsEachOpeningOnce"},
	},
	{
		Name:     "receipts are never changed or deleted",
		Edits:    []Edit{{"internal/schema/stored/triggers.go", "{\"receipts\", \"append_only\", \"BEFORE DELETE OR UPDATE OR TRUNCATE\"", "{\"receipts\", \"append_only\", \"BEFORE TRUNCATE\""}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal", Test: "TestReceiptsAreNeverChanged"},
	},
	{
		Name:     "a submit role adds no receipt to a case that exists",
		Edits:    []Edit{{"internal/schema/stored/triggers.go", "((((new.seq > 1) OR", "((((new.seq > 9) OR"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestTheSubmitRoleSubmitsAndChangesNothingThatExists"},
	},
}
