package prove

// webhookGuards is what guards the events that are sent to webhooks, their secrets, and where requests go.
var webhookGuards = []Guard{
	{
		Name:     "a position that a person has set is not overwritten",
		Edits:    []Edit{{"postadjudication/internal/journal/webhookstore/sender.go", "WHERE p.webhook_id = d.id AND p.version = d.version`", "WHERE p.webhook_id = d.id`"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal/webhookstore", Test: "TestAPositionThatAPersonHasSetStays"},
	},
	{
		Name:     "a sender that lost its lock writes no position",
		Edits:    []Edit{{"postadjudication/internal/journal/webhookstore/sender.go", "_, err = s.conn.ExecContext(ctx, saveSQL, string(text))", "_, err = s.db.ExecContext(ctx, saveSQL, string(text))"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/journal/webhookstore", Test: "TestASenderThatLostItsLockWritesNothing"},
	},
	{
		Name: "a tenant has no more webhooks than it can, also by requests at once",
		Edits: []Edit{
			{"postadjudication/internal/journal/webhookstore/webhooks.go",
				"		if err := journal.AppendOperation(ctx, tx, w.Tenant, Log, draft); err != nil {\n			return err\n		}\n		// The log is locked", "		// The log is locked"},
			{"postadjudication/internal/journal/webhookstore/webhooks.go", "			err = ErrTooMany\n		}\n		return err", "			err = ErrTooMany\n		}\n		if err == nil {\n			err = journal.AppendOperation(ctx, tx, w.Tenant, Log, draft)\n		}\n		return err"},
		},
		CaughtBy: Detector{Package: "./postadjudication/webhooks", Test: "TestATenantHasNoMoreWebhooksThanItCan"},
	},
	{
		Name:     "the address of a webhook is judged at each connection",
		Edits:    []Edit{{"postadjudication/internal/webhookdelivery/client.go", "return CheckAddress(at.Addr(), allow, plain)", "_ = CheckAddress(at.Addr(), allow, plain)\n		return nil"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/webhookdelivery", Test: "TestANameIsJudgedAtEachConnection"},
	},
	{
		Name:     "no redirect of a webhook is followed",
		Edits:    []Edit{{"postadjudication/internal/webhookdelivery/client.go", "{ return http.ErrUseLastResponse }", "{ return nil }"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/webhookdelivery", Test: "TestAnswersThatAreNoSuccess"},
	},
	{
		Name:     "the secret of a webhook can be decrypted for that webhook only",
		Edits:    []Edit{{"postadjudication/internal/webhookdelivery/secret.go", "return append(append([]byte(\"recourse/webhook/1\"), id[:]...), tenant...)", "return []byte(\"recourse/webhook/1\")"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/webhookdelivery", Test: "TestASealedSecretOpensForItsWebhookOnly"},
	},
	{
		Name:     "a deleted webhook has no secret",
		Edits:    []Edit{{"postadjudication/webhooks/webhooks.go", "		now.Secret, now.FormerSecret, now.FormerUntil = nil, nil, time.Time{}\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication/webhooks", Test: "TestAPersonPausesReplaysAndDeletes"},
	},
	{
		Name:     "an event is sent after those ahead of it in its case were accepted",
		Edits:    []Edit{{"postadjudication/internal/webhookdelivery/queue.go", "		first := items[0]\n", "		first := items[len(items)-1]\n"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/webhookdelivery", Test: "TestAQueueDeliversEveryEventOfACaseInOrder"},
	},
	{
		Name:     "an event that is being sent is not sent a second time meanwhile",
		Edits:    []Edit{{"postadjudication/internal/webhookdelivery/queue.go", "		case first.sending:\n", "		case false:\n"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/webhookdelivery", Test: "TestAQueueSaysWhenTheNextTryIsDue"},
	},
	{
		Name:     "what a process left pending is sent by the next one",
		Edits:    []Edit{{"postadjudication/internal/webhookdelivery/delivery.go", "d.queue.add(0, found...)", "d.queue.add(0, found[:0]...)"}},
		CaughtBy: Detector{Package: "./postadjudication/webhooks", Test: "TestWhatIsPendingIsSentAfterARestart"},
	},
	{
		Name:     "a webhook that a person has just changed does not pause itself",
		Edits:    []Edit{{"postadjudication/internal/webhookdelivery/round.go", "if now.Version != w.Version { // a person was first", "if now.Version != w.Version && false {"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/webhookdelivery", Test: "TestAWebhookThatAPersonChangedDoesNotPauseItself"},
	},
	{
		Name:     "a webhook that is sent elsewhere is found by the audit",
		Edits:    []Edit{{"postadjudication/audit/webhooks.go", "	d.compare(\"definition\", w.Definition, t.Definition)\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestTheAuditFindsEveryChangeOfAWebhook"},
	},
	{
		Name:     "a position that would skip events is found by the audit",
		Edits:    []Edit{{"postadjudication/internal/trail/mismatches.go", "WHERE p.tenant = $1 AND p.read_to > e.newest", "WHERE p.tenant = $1 AND p.read_to > e.newest AND false"}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestTheAuditFindsEveryChangeOfAWebhook"},
	},
	{
		Name:     "a webhook that would miss events is found by the audit",
		Edits:    []Edit{{"postadjudication/audit/webhookprogress.go", "; w.Delivered != want {", "; w.Delivered != want && false {"}},
		CaughtBy: Detector{Package: "./postadjudication/webhooks", Test: "TestTheAuditFindsAWebhookThatWouldMissEvents"},
	},
	{
		Name:     "a former secret of a webhook that was put back is found by the audit",
		Edits:    []Edit{{"postadjudication/audit/webhooks.go", "	d.compare(\"secret, by the digest of what is encrypted,\", binding.EncryptedSecretDigest(w.Secret), t.secret)\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication", Test: "TestTheAuditFindsEveryChangeOfAWebhook"},
	},
	{
		Name:     "how long an event has failed for outlives its process",
		Edits:    []Edit{{"postadjudication/internal/webhookdelivery/delivery.go", "				i.firstFailed = d.counters.FailingSince\n", "				_ = i\n"}},
		CaughtBy: Detector{Package: "./postadjudication/webhooks", Test: "TestTheTimeOfTheFirstFailureOutlivesTheProcess"},
	},
	{
		Name:     "a webhook is sent to by one delivery only, also after its position was set",
		Edits:    []Edit{{"postadjudication/internal/webhookdelivery/round.go", "	if r.ending[w.ID] != nil {\n		return\n	}\n", ""}},
		CaughtBy: Detector{Package: "./postadjudication/webhooks", Test: "TestAReplayWaitsForTheRequestInFlight"},
	},
	{
		Name:     "the event that failed least is sent next",
		Edits:    []Edit{{"postadjudication/internal/webhookdelivery/queue.go", "case found == nil || first.failures < found.failures || first.failures == found.failures && first.position < found.position:", "case found == nil || first.position < found.position:"}},
		CaughtBy: Detector{Package: "./postadjudication/internal/webhookdelivery", Test: "TestAnEventThatFailsComesAfterOthers"},
	},
}
