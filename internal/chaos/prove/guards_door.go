package prove

// door is what guards the doors: who may ask for what, how much of it, and what is taken.
var door = []Guard{
	{
		Name:  "a target that is not configured is refused at the door",
		Edits: []Edit{{"postadjudication/submit.go", "; !known {\n		problem = errors.Join(problem, errTarget", "; !known && false {\n		problem = errors.Join(problem, errTarget"}},
		By:    Catch{Package: "./postadjudication", Test: "TestATargetThatIsNotConfiguredIsRefused"},
	},
	{
		Name:  "a server beyond this machine is reached with TLS that shows who it is",
		Edits: []Edit{{"internal/app/transport.go", "if !r.Protection.Safe() && !r.Said {", "if !r.Protection.Safe() && !r.Said && false {"}},
		By:    Catch{Package: "./internal/app", Test: "TestServersBeyondThisMachineHaveToShowWhoTheyAre"},
	},
	{
		Name:  "a database is for demonstrations or for money",
		Edits: []Edit{{"postadjudication/conditions.go", "case c.Executor == nil || c.Demonstration == of.Demonstration:", "case c.Executor != nil || !of.Demonstration:"}},
		By:    Catch{Package: "./internal/app", Test: "TestADatabaseIsForDemonstrationsOrForMoneyForEver"},
	},
	{
		Name:  "a key that has ended opens nothing",
		Edits: []Edit{{"internal/access/key.go", "	case k.ExpiresAt != nil && !now.Before(*k.ExpiresAt):\n		return ErrExpired\n", ""}},
		By:    Catch{Package: "./internal/access", Test: "TestAnExpiredKeyIsRefusedAtOnce"},
	},
	{
		Name:  "a key opens what its roles may do and nothing else",
		Edits: []Edit{{"internal/api/door.go", "	if access.May(c.Roles, action) {", "	if access.May(c.Roles, action) || true {"}},
		By:    Catch{Package: "./internal/api", Test: "TestARefusalAboutARunIsToldInItsCase"},
	},
	{
		Name:  "asynqmon, which shows all tenants, is for the platform",
		Edits: []Edit{{"internal/access/action.go", "	Queues:    {Platform},", "	Queues:    {Platform, Operator},"}},
		By:    Catch{Package: "./internal/api", Test: "TestAsynqmonAsksForAKey"},
	},
	{
		Name:  "a submitter lists nothing of its tenant",
		Edits: []Edit{{"internal/access/action.go", "	List:      {Operator, ", "	List:      {Submitter, Operator, "}},
		By:    Catch{Package: "./internal/access", Test: "TestEveryCellOfTheTable"},
	},
	{
		Name:  "a principal has one pattern, without look-alikes",
		Edits: []Edit{{"internal/access/principal.go", "case !principals.MatchString(text):", "case !principals.MatchString(text) && false:"}},
		By:    Catch{Package: "./internal/access", Test: "TestPrincipalsHaveOnePatternAndNoneIsTheMachines"},
	},
	{
		Name:  "a principal is none that acts without a key",
		Edits: []Edit{{"internal/access/principal.go", "case slices.Contains(reserved, kind):", "case slices.Contains(reserved, kind) && false:"}},
		By:    Catch{Package: "./internal/access", Test: "TestPrincipalsHaveOnePatternAndNoneIsTheMachines"},
	},
	{
		Name:  "a member that is given twice is refused",
		Edits: []Edit{{"internal/strictjson/scan.go", "if p.repeated(name, first, &many) {", "if p.repeated(name, first, &many) && false {"}},
		By:    Catch{Package: "./internal/strictjson", Test: "TestCheckNamesWhatIsAmbiguous"},
	},
	{
		Name:  "a batch has no more items than it may",
		Edits: []Edit{{"internal/intake/batch.go", "		if len(out) == items {", "		if len(out) == items && false {"}},
		By:    Catch{Package: "./internal/intake", Test: "TestABatchThatIsNoneIsRefused"},
	},
	{
		Name:  "an item of a batch is no longer than it may",
		Edits: []Edit{{"internal/intake/batch.go", "errors.Is(err, errBound) || err == nil && len(text) > length {", "errors.Is(err, errBound) {"}},
		By:    Catch{Package: "./internal/intake", Test: "TestABatchThatIsNoneIsRefused"},
	},
	{
		Name:  "a key has its share of the streams",
		Edits: []Edit{{"internal/api/share.go", "	case s.key > 0 && c.Key", "	case s.key < 0 && c.Key"}},
		By:    Catch{Package: "./internal/api", Test: "TestSharesAreDividedAmongKeysAndTenants"},
	},
	{
		Name:  "keys that are not there are looked up no oftener than an address may",
		Edits: []Edit{{"internal/api/door.go", "if !a.keys.Unseen(token) || !a.failed.spent(from) {", "if !a.keys.Unseen(token) || !a.failed.spent(from) || true {"}},
		By:    Catch{Package: "./internal/api", Test: "TestLookUpsOfKeysThatAreNotThereAreBounded"},
	},
	{
		Name:  "an operator gives a fork no more attempts than the policy",
		Edits: []Edit{{"internal/api/letters.go", "a.forkWithinReach(ctx, c, id, policy)", "a.forkWithinReach(ctx, c, id, nil)"}},
		By:    Catch{Package: "./internal/api", Test: "TestAnOperatorGivesAForkNoMoreAttemptsThanThePolicy"},
	},
	{
		Name:  "an operator plans forks with no more attempts than the policy",
		Edits: []Edit{{"internal/api/bulk.go", "a.planWithinReach(ctx, c, q.Filter.Family, q.Policy)", "a.planWithinReach(ctx, c, q.Filter.Family, nil)"}},
		By:    Catch{Package: "./internal/api", Test: "TestAnOperatorGivesAForkNoMoreAttemptsThanThePolicy"},
	},
	{
		Name: "the positions of a tenant tell nothing of the others",
		Edits: []Edit{{"internal/postgres/sequencer.go", "own.last + sum(cardinality(o.seqs)) OVER (PARTITION BY o.tenant ORDER BY o.id),",
			"before.last + sum(cardinality(o.seqs)) OVER (ORDER BY o.id),"}},
		By: Catch{Package: "./postadjudication", Test: "TestPositionsTellNothingOfOtherTenants"},
	},
}
