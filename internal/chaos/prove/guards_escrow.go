package prove

// escrowGuards is what guards the sums of escrows, and those who do not wait for one.
var escrowGuards = []Guard{
	{
		Name: "an admission counts only the deltas that it folded itself",
		Edits: []Edit{{"internal/postgres/statement_open.go", "(SELECT sum(fold.delta) FROM fold WHERE fold.escrow_id = e.id)",
			"(SELECT sum(y.delta) FROM recourse.escrow_deltas y WHERE y.escrow_id = e.id)"}},
		CaughtBy: Detector{Package: "./internal/postgres", Test: "TestADeltaIsCountedOnceByWhoeverFoldsIt"},
	},
	{
		Name: "the fold adds only the deltas that it deleted itself",
		Edits: []Edit{{"internal/postgres/escrow_deltas.go", "FROM (SELECT escrow_id, sum(delta)::bigint AS delta FROM fold GROUP BY 1) s",
			"FROM (SELECT y.escrow_id, sum(y.delta)::bigint AS delta FROM recourse.escrow_deltas y JOIN e ON e.id = y.escrow_id GROUP BY 1) s"}},
		CaughtBy: Detector{Package: "./internal/postgres", Test: "TestTheSumOfAnEscrowIsRightAtEveryMoment"},
	},
	{
		Name:     "what a move adds to or frees from its escrow is recorded with it",
		Edits:    []Edit{{"internal/postgres/statement_hot.go", "FROM ok WHERE delta <> 0", "FROM ok WHERE false"}},
		CaughtBy: Detector{Package: "./internal/postgres", Test: "TestATransitionNeverWaitsForItsEscrow"},
	},
	{
		Name:     "the fold waits for nobody who holds an escrow",
		Edits:    []Edit{{"internal/postgres/escrow_deltas.go", "FOR NO KEY UPDATE OF e SKIP LOCKED", "FOR NO KEY UPDATE OF e"}},
		CaughtBy: Detector{Package: "./internal/postgres", Test: "TestATransitionNeverWaitsForItsEscrow"},
	},
	{
		Name:     "one submission of an escrow waits for a transaction that holds it",
		Edits:    []Edit{{"internal/postgres/turns.go", "if held, ok := t.byName[name]; ok {", "if byName, ok := t.byName[name]; ok && t == nil {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestOneSubmissionOfAnEscrowWaitsForAnOpenTransaction"},
	},
	{
		Name: "naming an escrow waits for nobody who has changed it",
		Edits: []Edit{{"internal/postgres/escrow.go",
			"WHERE NOT EXISTS (SELECT FROM recourse.escrows e WHERE e.tenant = t.tenant AND e.reference = t.reference)\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestAnOpenTransactionKeepsOnlySubmissionsForItsEscrowWaiting"},
	},
}
