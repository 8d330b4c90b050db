package main

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/receipts"
)

// What was stated under an operation key is on record, and what is recorded as a contradiction was stated.
func TestVerifyComparesWhatWasStatedWithTheReceipts(t *testing.T) {
	t.Parallel()
	run := background.RunID{1}
	receipt := func(subtype receipts.Subtype, moved int64, reference string) parsedReceipt {
		return parsedReceipt{receipts.Receipt{Run: run, Subtype: subtype, Actor: "worker:w"}, receipts.Payload{
			AttemptClass: receipts.ClassExecuted, Moved: moved, Reference: reference}}
	}
	contradicted := func(moved int64, reference string) parsedReceipt {
		r := receipt(receipts.Contradicted, moved, reference)
		r.p.Recorded, r.p.RecordedReference = 1000, "r"
		return r
	}
	of := func(moved int64, reference string, known bool) statement {
		return statement{worker.Statement{Key: "key", Moved: moved, Reference: reference}, background.Executed, known}
	}
	paid, whole := receipt(receipts.AttemptSucceeded, 1000, "r"), of(1000, "r", true)
	for what, c := range map[string]struct {
		said []statement
		have []parsedReceipt
		want string // "" for nothing broken
	}{
		"as it was paid":                       {[]statement{whole, whole}, []parsedReceipt{paid}, ""},
		"a part, then the whole":               {[]statement{of(400, "r", true), whole}, []parsedReceipt{receipt(receipts.AttemptSucceeded, 400, "r"), receipt(receipts.AnsweredLate, 1000, "r")}, ""},
		"the rest is dropped":                  {[]statement{of(400, "r", true), whole}, []parsedReceipt{receipt(receipts.AttemptSucceeded, 400, "r")}, "stated executed of 1000"},
		"a lower sum is dropped":               {[]statement{whole, of(400, "r", true)}, []parsedReceipt{paid}, "stated executed of 400"},
		"a lower sum of a worker that ended":   {[]statement{whole, of(400, "r", false)}, []parsedReceipt{paid}, ""},
		"a lower sum is on record":             {[]statement{whole, of(400, "r", true)}, []parsedReceipt{paid, contradicted(400, "r")}, ""},
		"another reference is dropped":         {[]statement{whole, of(1000, "s", true)}, []parsedReceipt{paid}, `with the reference "s"`},
		"another reference is on record":       {[]statement{whole, of(1000, "s", true)}, []parsedReceipt{paid, contradicted(1000, "s")}, ""},
		"a contradiction that nobody stated":   {[]statement{whole}, []parsedReceipt{paid, contradicted(400, "r")}, "nobody stated that"},
		"a contradiction by what was recorded": {[]statement{whole}, []parsedReceipt{paid, contradicted(1000, "r")}, "agrees with what is on record"},
	} {
		submitted := parsedReceipt{receipts.Receipt{Run: run, Subtype: receipts.Submitted}, receipts.Payload{OperationKey: "key"}}
		v := &verification{}
		v.checkStatements(c.said, map[transaction]*caseTrail{{"t", "x"}: {receipts: append([]parsedReceipt{submitted}, c.have...)}})
		if got := strings.Join(v.Broken, "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q, want %q", what, got, c.want)
		}
	}
}
