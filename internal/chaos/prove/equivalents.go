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
}
