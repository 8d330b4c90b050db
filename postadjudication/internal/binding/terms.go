package binding

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Every request is bound to the receipts: the submitted receipt of a run holds the digest of its
// request and its operation key, and never changes. Columns can be changed: they are sent only
// if the receipt agrees.
//
//	submitted receipt ─▶ Terms ─▶ Check: key and digest, before each claim, call and lookup, and by the audit

// Stored is what the rows of a run say about its request.
type Stored struct {
	Run          receipts.RunID
	Case         receipts.CaseID
	Tenant       string
	Target       string
	OperationKey [32]byte // zero for a plain task
	Request      []byte   // the bytes that are sent; the payload of a plain task
	Queue        string
	Remote       bool // remote workers fetch it from Queue
	Closed       bool // it has ended and can't be forked: whoever fetches from Queue is not given it
}

// Altered is the error for a request that differs from the submitted one. Its text says in what.
type Altered string

func (a Altered) Error() string {
	return "postadjudication: the request is not what the receipt of its submission says: " + string(a)
}

// NotSubmitted is the error for a run that no receipt submits.
const NotSubmitted Altered = "no receipt submits the run"

// Check returns nil if a run's operation key and request match the terms of its submitted
// receipt, else an Altered. For a plain task it compares the payload. Nil terms are those of a
// run without such a receipt. The workers of one queue are the payer of a remote target: no others may be
// given its order, since their payment service does not know the operation key.
func Check(s *Stored, t *receipts.Terms) error {
	switch {
	case t == nil || t.Run != s.Run || t.Case != s.Case || t.Tenant != s.Tenant:
		return NotSubmitted
	case t.Target != s.Target:
		return Altered("another escrow service")
	case t.OperationKey == [32]byte{} && s.OperationKey == [32]byte{}: // a plain task
		if sha256.Sum256(s.Request) != t.RequestDigest {
			return Altered("another digest of the payload")
		}
		return nil
	case t.OperationKey != operationKeyOf(t) || t.OperationKey != s.OperationKey:
		return Altered("another operation key")
	case !s.Closed && !isOfPayer(s, t.Target):
		return Altered("the queue of another payer")
	case sha256.Sum256(s.Request) != t.RequestDigest:
		return Altered("another digest of the request")
	}
	return nil
}

// isOfPayer reports whether the queue of a run is that of a target, if remote workers make its calls.
func isOfPayer(s *Stored, target string) bool {
	queue, remote := strings.CutPrefix(target, RemotePrefix)
	return s.Remote == remote && (!remote || s.Queue == queue)
}

// operationKeyOf derives the operation key from the terms of a run.
func operationKeyOf(t *receipts.Terms) [32]byte {
	return OperationKey(settlement.Instruction{
		Tenant: t.Tenant, TransactionReceiptID: t.TransactionReceiptID, Outcome: settlement.Outcome(t.Outcome), Generation: t.Generation,
	}, t.Target, t.Epoch)
}

// CheckPayment returns nil if a request asks for the outcome and the amount of its terms, else
// an Altered.
func CheckPayment(request []byte, t *receipts.Terms) error {
	var o struct {
		Amount  settlement.Money   `json:"amount"`
		Outcome settlement.Outcome `json:"outcome"`
	}
	if err := json.Unmarshal(request, &o); err != nil {
		return Altered("it can't be read: " + err.Error())
	}
	if o.Amount != (settlement.Money{Minor: t.Amount, Currency: t.Currency}) || string(o.Outcome) != t.Outcome {
		return Altered(fmt.Sprintf("another outcome or amount: %s of %d %s, not %s of %d %s",
			o.Outcome, o.Amount.Minor, o.Amount.Currency, t.Outcome, t.Amount, t.Currency))
	}
	return nil
}
