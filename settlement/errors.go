package settlement

import "fmt"

// FieldError says which field of an input is wrong. Field is its name in JSON,
// such as "amount.minor". The same input is refused every time.
type FieldError struct{ Field, Problem string }

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// Refused says that the table has no line for a fact at the status of the case. The
// state was not changed.
type Refused struct {
	From Status
	Fact Fact
}

func (e *Refused) Error() string {
	from := e.From
	if from == None {
		from = "none"
	}
	return fmt.Sprintf("settlement: %s is refused at status %s", e.Fact, from)
}
