package prove

import "slices"

// evidence is what guards what is kept.
var evidence = []Guard{
	{
		Name:  "free text is redacted before it is kept",
		Edits: []Edit{{"postadjudication/evidence.go", "	s = redact.Text(s)\n	if len(s) > limit {", "	_ = redact.Text\n	if len(s) > limit {"}},
		By:    Catch{Package: "./postadjudication", Test: "TestSecretsStayOutOfDatabaseAndLog"},
	},
	{
		Name:  "a secret in a payload is refused at the door",
		Edits: []Edit{{"postadjudication/adjudication.go", "redact.Find(p); found {", "redact.Find(p); found && false {"}},
		By:    Catch{Package: "./postadjudication", Test: "TestSecretsInAPayloadAreRefusedAtTheDoor"},
	},
	{
		Name:  "a chain is verified link by link",
		Edits: []Edit{{"receipts/verify.go", "	if r.Link != next.Link {", "	if false {"}},
		By:    Catch{Package: "./receipts", Test: "TestEveryFieldOfEveryReceiptIsGuarded"},
	},
	{
		Name:  "a run of another tenant is not there",
		Edits: []Edit{{"postadjudication/status.go", "if tenant == \"\" || snap.Run.Tenant != tenant {", "if tenant == \"\" {"}},
		By:    Catch{Package: "./postadjudication", Test: "TestARunOfAnotherTenantIsNotThere"},
	},
}

// Guards is the table.
var Guards = slices.Concat(journal, engine, money, escrow, evidence)
