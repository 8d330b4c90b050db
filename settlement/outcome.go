package settlement

import "fmt"

// Outcome is what an adjudication decides to do with the escrow's money.
type Outcome string

// The outcomes.
const (
	Release Outcome = "release" // pay it out
	Refund  Outcome = "refund"  // pay it back
)

// ParseOutcome reads an outcome as it is written on the wire: exactly "release" or
// "refund". Anything else is a *FieldError about "outcome".
func ParseOutcome(text string) (Outcome, error) {
	o := Outcome(text)
	if !o.known() {
		return "", &FieldError{Field: "outcome", Problem: fmt.Sprintf("is neither %s nor %s", Release, Refund)}
	}
	return o, nil
}

func (o Outcome) known() bool { return o == Release || o == Refund }
