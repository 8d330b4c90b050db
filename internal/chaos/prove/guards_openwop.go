package prove

// openwopGuards is what guards the runs of OpenWOP: nothing is made twice, a log ends once, and nobody sees
// a run whose days are over.
var openwopGuards = []Guard{
	{
		Name:     "a run is gone when its days are over",
		Edits:    []Edit{{"internal/openwop/runlog.go", "known && !over && run.Letter", "known && (!over || over) && run.Letter"}},
		CaughtBy: Detector{Package: "./internal/openwop", Test: "TestADeadRunIsGoneWhenItsDaysAreOver"},
	},
	{
		Name:     "a create that is repeated after a crash makes no second task",
		Edits:    []Edit{{"internal/openwop/create.go", "t.RetryKey, t.Once = \"openwop:\"+t.Request, true", "t.RetryKey, t.Once = \"openwop:\"+t.Request, false"}},
		CaughtBy: Detector{Package: "./internal/openwop", Test: "TestARepeatedRequestFindsWhatItMade"},
	},
	{
		Name:     "a fork that is repeated after a crash makes no second fork",
		Edits:    []Edit{{"internal/openwop/fork.go", "err := s.runOfRequest(q, source.of); err != nil || !made.IsZero() {", "err := s.runOfRequest(q, source.of); err != nil {"}},
		CaughtBy: Detector{Package: "./internal/openwop", Test: "TestARepeatedRequestFindsWhatItMade"},
	},
	{
		Name:     "after a failure a key still belongs to its request",
		Edits:    []Edit{{"internal/door/idempotency.go", "err = begun.Interrupt(ctx)", "err = begun.Drop(ctx)"}},
		CaughtBy: Detector{Package: "./internal/openwop", Test: "TestA503DoesNotForgetThatAKeyWasUsed"},
	},
	{
		Name:     "a task runs again as the run that was named",
		Edits:    []Edit{{"postadjudication/runagain.go", "		if seen.Run.ID != of.Run.ID {", "		if seen.Run.ID != of.Run.ID && false {"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestATaskThatEndedRunsAgain"},
	},
	{
		Name:     "the reader of a stream has a valid key",
		Edits:    []Edit{{"internal/openwop/events.go", "err := f.server.Door.CheckKey(ctx, f.caller); err != nil", "err := f.server.Door.CheckKey(ctx, f.caller); err != nil && false"}},
		CaughtBy: Detector{Package: "./internal/openwop", Test: "TestARevokedKeyEndsTheStreamOfABusyRun"},
	},
	{
		Name:     "a log has nothing after its end",
		Edits:    []Edit{{"internal/openwop/spec/event.go", "r.Run != l.Run || l.ended {", "r.Run != l.Run {"}},
		CaughtBy: Detector{Package: "./internal/openwop/spec", Test: "TestALogOnlyGrowsAndEndsOnce"},
	},
	{
		Name:     "a follower begins before the log is read",
		Edits:    []Edit{{"internal/openwop/events.go", "	if f.began {\n		select {", "	if f.began || true {\n		select {"}},
		CaughtBy: Detector{Package: "./internal/openwop", Test: "TestWhatIsCommittedBeforeAPollWaitsWakesIt"},
	},
	{
		Name:     "a task that has a live run is not run again",
		Edits:    []Edit{{"postadjudication/runagain.go", "reply := replyToTask(seen, false); reply != Created", "reply := replyToTask(seen, false); reply == DeadLettered"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestATaskRunsAgainOnce"},
	},
}
