package settlement

// What black-box tests need of this package that its users do not.

// Exponents has the number of digits after the point of each currency.
var Exponents = exponents

// FactsInTable returns how many facts the table has rules for.
func FactsInTable() int { return len(table) }

// InTable reports whether the table has rules for a fact.
func InTable(f Fact) bool {
	_, in := table[f]
	return in
}
