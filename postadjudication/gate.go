package postadjudication

// Gate is the rule that refuses an action on a dead letter.
type Gate string

// The gates.
const (
	GateNotALetter     Gate = "not_a_letter"     // the run is not dead-lettered
	GateNotOpen        Gate = "not_open"         // the letter was forked, reconciled, superseded or purged
	GateReconcileFirst Gate = "reconcile_first"  // money may have moved, and the operation key may be over
	GateCaseEnded      Gate = "case_ended"       // the case is settled or refunded
	GateNotSettlement  Gate = "not_a_settlement" // a plain task has no money to find out about
	GateHeld           Gate = "held"             // somebody holds the letter
	GateNotHeld        Gate = "not_held"         // nobody holds the letter
)

// Meaning tells a person why a gate refuses, and what to do first if that helps.
func (g Gate) Meaning() string {
	switch g {
	case GateNotALetter:
		return "the run is no dead letter"
	case GateNotOpen:
		return "the letter is not open any more"
	case GateReconcileFirst:
		return "money may have moved, so reconcile first, by a lookup or a finding"
	case GateCaseEnded:
		return "the case is settled or refunded"
	case GateNotSettlement:
		return "a plain task has no money to find out about"
	case GateHeld:
		return "the letter is held"
	case GateNotHeld:
		return "nobody holds the letter"
	}
	return "there is a rule of that name"
}
