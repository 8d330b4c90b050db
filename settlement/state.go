package settlement

// Status is where a case stands on the way to its end.
type Status string

// The standings. None is a case that nothing has happened to yet.
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

// Statuses are all of them.
var Statuses = []Status{
	None, Pending, InProgress, ReviewNeeded, ApprovedForSettlement, PartiallySettled, Settled, DisputeReady, Refunded,
}

// Ended reports whether the case is settled or refunded. It stays so for ever.
func (s Status) Ended() bool { return s == Settled || s == Refunded }

// ReasonCode classes the reason of the last move.
type ReasonCode string

// The reason codes. No fact of the table leads to Reject: an adjudication that is
// rejected is never handed over.
const (
	Approve         ReasonCode = "approve"
	Reject          ReasonCode = "reject"
	RequestRevision ReasonCode = "request-revision"
	Escalate        ReasonCode = "escalate"
)

// Lifecycle is the standing of the dispute; empty when there is none.
type Lifecycle string

// The standings of a dispute.
const (
	NoDispute   Lifecycle = ""
	HoldActive  Lifecycle = "hold-active"
	ReEscalated Lifecycle = "re-escalated"
)

// State is the settlement of one case. All amounts are minor units of the escrow's
// currency and never negative. Asked and Moved are of the present generation;
// Reserved, Released and Refunded are of the whole case.
type State struct {
	Adjudication Outcome    `json:"escrow_adjudication"`
	Progression  Status     `json:"settlement_progression_status"`
	ReasonCode   ReasonCode `json:"settlement_progression_reason_code"`
	Reason       string     `json:"settlement_progression_reason"`
	Lifecycle    Lifecycle  `json:"dispute_lifecycle_status"`
	Generation   int        `json:"generation"`
	Asked        int64      `json:"asked"`
	Moved        int64      `json:"moved"`
	Reserved     int64      `json:"reserved"`
	Released     int64      `json:"released"`
	Refunded     int64      `json:"refunded"`
}

// Underfunded reports whether a payment under another key took from the reservation of
// the present generation, so that it no longer covers what is left to be moved. No
// attempt may begin then: it could pay a second time for the same decision.
func (s State) Underfunded() bool { return !s.Progression.Ended() && s.Reserved < s.Asked-s.Moved }

// NeedsOlderPaid reports whether an executed has to say what was paid under older keys
// ([Event.Older]): nothing is reserved any more, and the case has paid what did not count for
// the present generation, before it began or since.
func (s State) NeedsOlderPaid() bool {
	return !s.Progression.Ended() && s.Reserved == 0 && s.Asked > s.Moved && s.Released+s.Refunded > s.Moved
}
