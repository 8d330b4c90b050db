package prove

// jobGuards is what guards jobs: who answers for them, how often one is given, and what is retried.
var jobGuards = []Guard{
	{
		Name: "a lease is its worker's",
		Edits: []Edit{{"background/fetch.go", "	if held.Worker != \"\" && by.Worker != \"\" && held.Worker != by.Worker ||",
			"	if held.Worker != \"\" && by.Worker != \"\" && held.Worker != by.Worker && false ||"}},
		CaughtBy: Detector{Package: "./postadjudication/jobs", Test: "TestOnlyTheHolderAnswersForAJob"},
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
}
