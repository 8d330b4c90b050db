package prove

import "strings"

// equal is a mutant that no test can tell from the product.
type equal struct{ File, Kind, Text, Why string }

func (e equal) is(m mutant) bool {
	return e.File == m.File && e.Kind == m.Kind && e.Text == strings.Join(strings.Fields(m.Text), " ")
}

// equivalents are the mutants that don't count, each with why it is equal to the product.
var equivalents = []equal{
	{"settlement/table.go", alwaysTrue, "e.Fact == Executed", "no other fact changes the status of a case that has moved all that was asked for: it has ended"},
	{"postadjudication/internal/casework/caseruns.go", alwaysTrue, "!all[0].Case.State.NeedsOlderPaid()", "what older decisions paid was paid by runs of class executed, which anyPaid finds"},
	{"postadjudication/internal/casework/caseruns.go", neverTrue, "!out.anyPaid() && !all[0].Case.State.NeedsOlderPaid() && now.Run.UnknownOpen == 0", "receipts without a payment and without an unknown outcome say what the zero value says: it saves only that they are read"},
	{"postadjudication/internal/casework/settlementfamily.go", neverTrue, "s.Case.State.Moved > 0", "a decision whose run is no fork has one key: if it has paid, its run is of class executed"},
	{"postadjudication/internal/journal/change.go", alwaysTrue, "change.After.Case.Kind != KindOperations", "a log of operations has no run that is stored: nobody reads its terms"},
	{"postadjudication/internal/journal/heldleases.go", neverTrue, "len(now) == len(held)", "it saves only that the leases are read again"},
	{"postadjudication/internal/journal/heldleases.go", neverTrue, "len(held) == 0", "it saves only more tries, which extend nothing"},
	{"postadjudication/internal/journal/letterbatch.go", withoutSQL, "operation_key IS NULL", "the request of a settlement stands in operations, from where it is read"},
	{"postadjudication/internal/journal/letterhandlers.go", neverTrue, "len(letters) == 0", "it saves only a statement that finds nothing"},
	{"postadjudication/internal/journal/opensql.go", withoutSQL, "d.amount <= d.free", "what does not fit beside a row that is refused is tried again by itself"},
	{"postadjudication/internal/journal/receipts.go", withoutSQL, "subtype = 'conservation-breach'", "no other receipt has an excess: it saves only that they are read"},
	{"postadjudication/internal/journal/submit.go", alwaysTrue, "opened.result == exceedsHeld", "a case that this submission has opened is found by its run"},
	{"postadjudication/internal/journal/transitionsql.go", withoutSQL, "r.attempt_count = u.attempt", "the head of the case is compared too, and each attempt has a receipt"},
	{"postadjudication/internal/journal/transitionsql.go", withoutSQL, "r.attempt_count = b.attempt", "the head of the case is compared too, and each attempt has a receipt"},
}
