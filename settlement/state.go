package settlement

// Status is the progress of a case.
type Status string

// The statuses. None is the status of a case without a fact.
const (
	None                  Status = ""
	Pending               Status = "pending"
	InProgress            Status = "in-progress"
	ReviewNeeded          Status = "review-needed"
	ApprovedForSettlement Status = "approved-for-settlement"
	PartiallySettled      Status = "partially-settled"
	Settled               Status = "settled"
	DisputeReady          Status = "dispute-ready"
	Refunded              Status = "refunded"
)

// Statuses lists all statuses.
var Statuses = []Status{
	None, Pending, InProgress, ReviewNeeded, ApprovedForSettlement, PartiallySettled, Settled, DisputeReady, Refunded,
}

// Ended reports whether the case is settled or refunded, which is final unless the payment comes back.
func (s Status) Ended() bool { return s == Settled || s == Refunded }

// ReasonCode classifies the reason of the last change of status.
type ReasonCode string

// The reason codes. No fact of the table leads to Reject: a rejected adjudication is
// never submitted.
const (
	Approve         ReasonCode = "approve"
	Reject          ReasonCode = "reject"
	RequestRevision ReasonCode = "request-revision"
	Escalate        ReasonCode = "escalate"
)

// Lifecycle is the status of the dispute; empty when there is none.
type Lifecycle string

// The statuses of a dispute.
const (
	NoDispute   Lifecycle = ""
	HoldActive  Lifecycle = "hold-active"
	ReEscalated Lifecycle = "re-escalated"
)

// State is the settlement of one case. All amounts are minor units of the escrow's
// currency and never negative. Asked and Moved are of the present generation;
// Reserved, Released, Refunded and Returned are of the whole case. Released and Refunded are what was
// paid, also if it came back; Returned is what came back of both. Moved falls by what came back.
type State struct {
	Outcome     Outcome    `json:"escrow_adjudication"`
	Progression Status     `json:"settlement_progression_status"`
	ReasonCode  ReasonCode `json:"settlement_progression_reason_code"`
	Reason      string     `json:"settlement_progression_reason"`
	Lifecycle   Lifecycle  `json:"dispute_lifecycle_status"`
	Generation  int        `json:"generation"`
	Asked       int64      `json:"asked"`
	Moved       int64      `json:"moved"`
	Reserved    int64      `json:"reserved"`
	Released    int64      `json:"released"`
	Refunded    int64      `json:"refunded"`
	Returned    int64      `json:"returned,omitempty"`
}

// Committed returns what the case has committed of its escrow.
func (s State) Committed() int64 { return s.Reserved + s.Released + s.Refunded - s.Returned }

// Underfunded reports whether a payment under another key took from the reservation of
// the present generation, so that the rest does not cover what is left to be moved:
// Reserved < Asked - Moved; or that nothing is reserved for a decision that was carried out before a payment came
// back. No attempt may begin then: it could pay a second time for the same decision.
func (s State) Underfunded() bool {
	return !s.Progression.Ended() && (s.Reserved < s.Asked-s.Moved || s.Progression == DisputeReady && s.Reserved == 0)
}

// NeedsOlderPaid reports whether an executed event must have [Event.OlderPaid]: nothing is
// reserved, and the case has paid sums that did not count for the present generation, before it
// began or since.
func (s State) NeedsOlderPaid() bool {
	return !s.Progression.Ended() && s.Reserved == 0 && s.Asked > s.Moved && s.Released+s.Refunded > s.Moved
}
