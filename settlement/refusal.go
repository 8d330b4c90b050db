package settlement

import "fmt"

// Refused says that the table has no line for a fact where the case stands. The
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
	return fmt.Sprintf("settlement: %s is refused where the case stands at %s", e.Fact, from)
}
