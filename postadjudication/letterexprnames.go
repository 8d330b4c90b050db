package postadjudication

import (
	"time"

	"cel.dev/cel-go/cel"

	"github.com/recourse-dev/recourse/settlement"
)

// exprMember is a member of a letter as expressions see it; it has a value or not.
type exprMember struct {
	kind  *cel.Type
	value func(l *Letter) (any, bool)
}

func exprText(of func(*Letter) string) exprMember {
	return exprMember{cel.StringType, func(l *Letter) (any, bool) { return of(l), true }}
}

func exprNumber(of func(*Letter) int) exprMember {
	return exprMember{cel.IntType, func(l *Letter) (any, bool) { return int64(of(l)), true }}
}

func exprFlag(of func(*Letter) bool) exprMember {
	return exprMember{cel.BoolType, func(l *Letter) (any, bool) { return of(l), true }}
}

func exprTime(of func(*Letter) *time.Time) exprMember {
	return exprMember{cel.TimestampType, func(l *Letter) (any, bool) {
		if t := of(l); t != nil {
			return *t, true
		}
		return nil, false
	}}
}

func exprMinor(of func(*Letter) *settlement.Money) exprMember {
	return exprMember{cel.IntType, func(l *Letter) (any, bool) {
		if m := of(l); m != nil {
			return m.Minor, true
		}
		return nil, false
	}}
}

func exprCurrency(of func(*Letter) *settlement.Money) exprMember {
	return exprMember{cel.StringType, func(l *Letter) (any, bool) {
		if m := of(l); m != nil {
			return m.Currency, true
		}
		return nil, false
	}}
}

// exprMembers are all members of a letter by their names in its JSON. A letter that
// died without an error has empty texts for it.
var exprMembers = map[string]exprMember{
	"run_id": exprText(func(l *Letter) string { return l.Run.String() }), "case_id": exprText(func(l *Letter) string { return l.Case.String() }),
	"family": exprText(func(l *Letter) string { return l.Family }), "queue": exprText(func(l *Letter) string { return l.Queue }), "job_type": exprText(func(l *Letter) string { return l.JobType }),
	"transaction_receipt_id": exprText(func(l *Letter) string { return l.Transaction }), "submission_receipt_id": exprText(func(l *Letter) string { return l.Submission }),
	"escrow_reference": exprText(func(l *Letter) string { return l.Escrow }), "outcome": exprText(func(l *Letter) string { return string(l.Outcome) }),
	"amount.minor": exprMinor(func(l *Letter) *settlement.Money { return l.Amount }), "amount.currency": exprCurrency(func(l *Letter) *settlement.Money { return l.Amount }),
	"at_risk.minor": exprMinor(func(l *Letter) *settlement.Money { return l.AtRisk }), "at_risk.currency": exprCurrency(func(l *Letter) *settlement.Money { return l.AtRisk }),
	"letter":           exprText(func(l *Letter) string { return string(l.Status) }),
	"dead_lettered_at": exprTime(func(l *Letter) *time.Time { return &l.DeadAt }), "last_seen_at": exprTime(func(l *Letter) *time.Time { return &l.LastSeenAt }),
	"expires_at":  exprTime(func(l *Letter) *time.Time { return l.ExpiresAt }),
	"age":         {cel.DurationType, func(l *Letter) (any, bool) { return time.Duration(l.Age), true }},
	"reason_code": exprText(func(l *Letter) string { return l.ReasonCode }), "outcome_class": exprText(func(l *Letter) string { return string(l.Class) }),
	"attempts": exprNumber(func(l *Letter) int { return l.Attempts }), "replay_count": exprNumber(func(l *Letter) int { return l.Replays }),
	"error.type":    exprText(func(l *Letter) string { return l.failure().Type }),
	"error.code":    exprText(func(l *Letter) string { return l.failure().Code }),
	"error.message": exprText(func(l *Letter) string { return l.failure().Message }),
	"signature":     exprText(func(l *Letter) string { return l.Signature }), "replayed_by": exprText(func(l *Letter) string { return l.ReplayedBy }),
	"held": exprFlag(func(l *Letter) bool { return l.Held }), "reprocess_eligible": exprFlag(func(l *Letter) bool { return l.Reprocess }), "manual_review_required": exprFlag(func(l *Letter) bool { return l.Review }),
	"dispatch_reference": exprText(func(l *Letter) string { return l.Dispatch }),
	"can_fork":           exprFlag(func(l *Letter) bool { return l.CanFork }), "refused_by": exprText(func(l *Letter) string { return string(l.RefusedBy) }),
}

// exprLetter gives expressions the values of a letter.
type exprLetter struct{ *Letter }

// ResolveName finds the value of a name.
func (l exprLetter) ResolveName(name string) (any, bool) {
	m, known := exprMembers[name]
	if !known {
		return nil, false
	}
	return m.value(l.Letter)
}

// Parent is that of an activation; there is none.
func (exprLetter) Parent() cel.Activation { return nil }

// failure is the letter's error, empty when it has none.
func (l *Letter) failure() AttemptError {
	if l.Error == nil {
		return AttemptError{}
	}
	return AttemptError{Type: l.Error.Type, Code: l.Error.Code, Message: l.Error.Message}
}
