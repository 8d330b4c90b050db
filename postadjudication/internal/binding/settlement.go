package binding

import (
	"fmt"
	"slices"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Settlement is a settlement derived only from the receipts of its case, by the rules of
// package settlement.
type Settlement struct {
	State              settlement.State
	PaidUnderOlderKeys int64 // paid under older keys since the current generation began, in minor units
	// Uncovered is what all payments took beyond what was reserved for them, in minor units. An escrow is
	// never breached by more than its cases' Uncovered together: only payments can breach it, since a
	// reservation is refused unless the escrow holds it.
	Uncovered int64

	overpaid int64                                 // beyond what was decided, and did not come back
	keys     map[receipts.RunID]string             // operation key of each run
	outcomes map[receipts.RunID]settlement.Outcome // what each run was submitted to do
	terms    map[receipts.RunID]int                // generation of each run
	payments []Payment                             // by operation key, in the order of the payments
	unknown  map[string]bool                       // operation keys under which money may have moved that is not on record
	excess   *excess                               // of the last receipt; nil: it was no payment beyond what was decided
}

// Payment is what was paid under an operation key, and what of it came back. Paid is the highest sum that was stated;
// Reference came with it, of an attempt of the run StatedBy.
type Payment struct {
	Run        receipts.RunID // that paid first under the key
	Outcome    settlement.Outcome
	Generation int
	Paid       int64
	Returned   int64

	Reference  string
	StatedBy   receipts.RunID
	Statements []Statement // the attempts that stated a payment under the key, in order

	key          string
	contradicted []contradiction // by what, in receipts
}

// Statement is an attempt that stated a payment.
type Statement struct {
	Run     receipts.RunID
	Attempt int
}

// IsStatedBy reports whether an attempt has stated a payment under the operation key, whichever did so first. A finding
// that names an attempt is not its word. Nor is the answer of a lookup where an earlier call under the key may have paid.
func (p *Payment) IsStatedBy(run receipts.RunID, attempt int) bool {
	return slices.Contains(p.Statements, Statement{run, attempt})
}

// contradiction is what an answer states that contradicts a payment.
type contradiction struct {
	class     string
	sum       int64
	reference string
}

// IsContradictedBy reports whether a receipt says already that such an answer contradicts the payment.
func (p *Payment) IsContradictedBy(class string, sum int64, reference string) bool {
	return slices.Contains(p.contradicted, contradiction{class, sum, reference})
}

// Left returns what was paid and did not come back.
func (p *Payment) Left() int64 { return p.Paid - p.Returned }

// Payments returns the payments of the case. The caller may change the slice.
func (f *Settlement) Payments() []Payment { return slices.Clone(f.payments) }

// PaymentOf returns the payment under the operation key of a run; nil if the receipts state none.
func (f *Settlement) PaymentOf(run receipts.RunID) *Payment {
	key, known := f.keys[run]
	i := slices.IndexFunc(f.payments, func(p Payment) bool { return p.key == key })
	if !known || i < 0 {
		return nil
	}
	return &f.payments[i]
}

// UnknownBeside reports whether money may have moved under another operation key than that of a run.
func (f *Settlement) UnknownBeside(run receipts.RunID) bool {
	for key := range f.unknown {
		if key != f.keys[run] {
			return true
		}
	}
	return false
}

// noteUnknown notes whether it is known what moved under the operation key of a receipt's run. What an escrow service
// answers covers the key that it was asked about; a person's finding that nothing was executed covers the case.
func (f *Settlement) noteUnknown(r receipts.Receipt, p receipts.Payload) {
	switch key := f.keys[r.Run]; {
	case r.Subtype == receipts.Reconciled && p.Finding == receipts.ClassNotExecuted && p.Lookup == "":
		clear(f.unknown)
	case key == "" || p.OutcomeClass == "":
	case p.OutcomeClass == receipts.ClassUnknown:
		f.unknown[key] = true
	default:
		delete(f.unknown, key)
	}
}

// Return returns the settlement after a part of the payment of a run came back. It returns false if that is more than
// is left of the payment.
func (f Settlement) Return(run receipts.RunID, amount int64) (Settlement, bool, error) {
	f.payments = slices.Clone(f.payments)
	e := settlement.Event{Fact: settlement.Returned, Generation: f.terms[run], Amount: amount, Overpaid: f.overpaid}
	if f.count(run, e) != nil {
		return f, false, nil
	}
	next, _, err := settlement.Apply(f.State, e)
	f.State, f.overpaid = next, f.overpaid-min(f.overpaid, amount)
	return f, true, err
}

// excess is what a payment moved beyond what was decided. The receipt after that of the payment states it.
type excess struct {
	run            receipts.RunID
	beyondDecided  int64
	beyondReserved int64 // what older versions wrote
}

// FoldSettlement derives the settlement of a case from its receipts, in order. It returns an
// error if a receipt states a settlement or an excess that does not follow from the receipts before
// it, or if the receipt of an excess is missing; the result is then what followed until there.
func FoldSettlement(rs []receipts.Receipt) (Settlement, error) {
	f := Settlement{keys: map[receipts.RunID]string{}, outcomes: map[receipts.RunID]settlement.Outcome{}, terms: map[receipts.RunID]int{}, unknown: map[string]bool{}}
	for _, r := range rs {
		p, err := r.Payload()
		if err != nil {
			return f, err
		}
		if err := f.checkExcess(r, p); err != nil {
			return f, err
		}
		if err := f.checkRecorded(r, p); err != nil {
			return f, err
		}
		mayHavePaid := f.unknown[f.keys[r.Run]] // an earlier call under the key
		f.noteUnknown(r, p)
		e, ok := f.event(r, p)
		if !ok {
			continue
		}
		e.OlderPaid, e.Overpaid = f.PaidUnderOlderKeys, f.overpaid
		next, effect, err := settlement.Apply(f.State, e)
		if err == nil {
			err = f.count(r.Run, e)
		}
		if err == nil && e.Paid > e.Recorded {
			f.describePayment(r.Run, p)
		}
		if err != nil {
			return f, fmt.Errorf("receipt %s: %w", r.ID(), err)
		}
		if paid := f.PaymentOf(r.Run); paid != nil && p.Moved > 0 && r.Subtype != receipts.Reconciled && (p.Lookup == "" || !mayHavePaid) {
			paid.Statements = append(paid.Statements, Statement{r.Run, p.Attempt})
		}
		f.addExcess(r.Run, e.Fact, effect)
		f.overpaid += effect.Excess
		if e.Fact == settlement.Returned {
			f.overpaid -= min(f.overpaid, e.Amount)
		}
		f.State = next
		switch {
		case e.Fact == settlement.Adjudicated, e.Fact == settlement.Readjudicated:
			f.PaidUnderOlderKeys = 0
		case e.Fact == settlement.ExecutedOlder:
			f.PaidUnderOlderKeys += max(0, e.Paid-e.Recorded)
		}
		if p.Settlement != nil && *p.Settlement != *SettlementSnapshot(next) {
			return f, fmt.Errorf("receipt %s states a settlement that does not follow", r.ID())
		}
		if r.Subtype == receipts.Submitted && p.Freed != 0 && p.Freed != -effect.Committed {
			return f, fmt.Errorf("receipt %s states %d freed, and %d follows", r.ID(), p.Freed, -effect.Committed)
		}
	}
	if f.excess != nil && f.excess.beyondDecided > 0 {
		return f, fmt.Errorf("%d was paid beyond what was decided, and no receipt says so", f.excess.beyondDecided)
	}
	return f, nil
}

// count counts a payment under its operation key, or what of it came back. It returns an error if more comes back
// than was paid under the key.
func (f *Settlement) count(run receipts.RunID, e settlement.Event) error {
	switch e.Fact {
	case settlement.Executed, settlement.ExecutedOlder:
		if p := f.PaymentOf(run); p != nil {
			p.Paid = max(p.Paid, e.Paid)
			return nil
		}
		f.payments = append(f.payments, Payment{Run: run, Outcome: e.Outcome, Generation: f.terms[run], Paid: e.Paid, key: f.keys[run]})
	case settlement.Returned:
		p := f.PaymentOf(run)
		if p == nil || e.Amount > p.Left() {
			return fmt.Errorf("%d came back of a run, which is more than it has paid", e.Amount)
		}
		p.Returned += e.Amount
	}
	return nil
}

// describePayment notes where the sum that is on record under the operation key of a run is from.
func (f *Settlement) describePayment(run receipts.RunID, p receipts.Payload) {
	paid := f.PaymentOf(run)
	paid.Reference, paid.StatedBy = p.Reference, run
}

// checkRecorded returns an error if a receipt states another sum as on record under its operation key than the receipts
// before it. It notes what contradicts the payment.
func (f *Settlement) checkRecorded(r receipts.Receipt, p receipts.Payload) error {
	if p.Recorded == 0 {
		return nil
	}
	of := f.PaymentOf(r.Run)
	if of == nil || of.Paid != p.Recorded {
		return fmt.Errorf("receipt %s states that %d were on record under its operation key, and that does not follow", r.ID(), p.Recorded)
	}
	if r.Subtype == receipts.Contradicted {
		of.contradicted = append(of.contradicted, contradiction{p.AttemptClass, p.Moved, p.Reference})
	}
	return nil
}

// addExcess notes what a payment took beyond what was reserved and decided: what it added to the sum that the
// escrow has committed. A repeated payment has no effect.
func (f *Settlement) addExcess(run receipts.RunID, fact settlement.Fact, effect settlement.Effect) {
	if beyond := effect.Committed; beyond > 0 && (fact == settlement.Executed || fact == settlement.ExecutedOlder) {
		f.Uncovered += beyond
		f.excess = &excess{run: run, beyondDecided: effect.Excess, beyondReserved: beyond}
	}
}

// checkExcess returns an error unless a receipt states the excess of the payment before it, as it must
// if that payment has one, and may not otherwise. The receipt of a breach that names no run is of an escrow
// as a whole, and states no payment.
func (f *Settlement) checkExcess(r receipts.Receipt, p receipts.Payload) error {
	last := f.excess
	f.excess = nil
	isExcessReceipt := r.Subtype == receipts.ConservationBreach && !r.Run.IsZero()
	switch {
	case !isExcessReceipt && (last == nil || last.beyondDecided == 0):
		return nil
	case !isExcessReceipt:
		return fmt.Errorf("receipt %s does not state that %d was paid beyond what was decided, and that follows", r.ID(), last.beyondDecided)
	case last == nil || last.run != r.Run:
		return fmt.Errorf("receipt %s states %d paid beyond what was decided, and the receipt before it is of no such payment", r.ID(), p.Excess)
	case p.Excess != last.beyondDecided && p.Excess != last.beyondReserved:
		return fmt.Errorf("receipt %s states %d paid beyond what was decided, and %d follows", r.ID(), p.Excess, last.beyondDecided)
	}
	return nil
}

// event returns the settlement event that a receipt records; ok is false if it records none.
func (f *Settlement) event(r receipts.Receipt, p receipts.Payload) (settlement.Event, bool) {
	switch r.Subtype {
	case receipts.Submitted:
		return f.submitted(r, p)
	case receipts.AttemptSucceeded:
		return f.executed(r.Run, p), true
	case receipts.AnsweredLate:
		if p.AttemptClass == receipts.ClassExecuted {
			return f.executed(r.Run, p), true
		}
	case receipts.Cancelled:
		return settlement.Event{Fact: settlement.Cancelled, KeepReserved: p.ReservationKept}, true
	case receipts.ReservationFreed:
		return settlement.Event{Fact: settlement.Freed}, true
	case receipts.Returned:
		return settlement.Event{Fact: settlement.Returned, Generation: f.terms[r.Run], Amount: p.Returned}, true
	case receipts.Reconciled:
		switch {
		case p.Finding == receipts.ClassExecuted:
			return f.executed(r.Run, p), true
		case p.LetterClosed:
			return settlement.Event{Fact: settlement.Closed, KeepReserved: p.ReservationKept}, true
		}
	}
	return SettlementEvent(r.Subtype, false, 0)
}

func (f *Settlement) submitted(r receipts.Receipt, p receipts.Payload) (settlement.Event, bool) {
	f.keys[r.Run], f.outcomes[r.Run], f.terms[r.Run] = p.OperationKey, settlement.Outcome(p.Outcome), p.Generation
	e := settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Outcome(p.Outcome), Generation: p.Generation, Amount: p.Amount}
	switch {
	case !p.ParentRun.IsZero():
		e.Fact = settlement.Forked
	case p.Readjudicated:
		e.Fact = settlement.Readjudicated
	}
	return e, true
}

// executed returns the event of a payment. Older receipts do not say whether a payment was made
// under an older generation's key; they count for the current generation, as they did when
// they were written. Of a key that has paid, a receipt that does not say how much was on record adds nothing:
// older versions counted the first sum only, and the present one writes it where the receipt adds something.
func (f *Settlement) executed(run receipts.RunID, p receipts.Payload) settlement.Event {
	e := settlement.Event{Fact: settlement.Executed, Paid: p.Moved, Outcome: f.outcomes[run]}
	if p.UnderOlderKey {
		e.Fact = settlement.ExecutedOlder
	}
	if of := f.PaymentOf(run); of != nil {
		if e.Recorded = of.Paid; p.Recorded == 0 {
			e.Paid = of.Paid
		}
	}
	return e
}

// SettlementEvent maps a transition to the settlement event that it causes, and reports false if it
// causes none. executed says that the answer or finding of the transition states a payment,
// and paid how much, in minor units. The caller sets Outcome, Recorded, OlderPaid and KeepReserved.
func SettlementEvent(transition receipts.Subtype, executed bool, paid int64) (e settlement.Event, ok bool) {
	switch transition {
	case receipts.AttemptStarted:
		return settlement.Event{Fact: settlement.AttemptStarted}, true
	case receipts.RetryScheduled:
		return settlement.Event{Fact: settlement.RetryScheduled}, true
	case receipts.AttemptInterrupted:
		return settlement.Event{Fact: settlement.AttemptInterrupted}, true
	case receipts.DeadLettered:
		return settlement.Event{Fact: settlement.DeadLettered}, true
	case receipts.Cancelled:
		return settlement.Event{Fact: settlement.Cancelled}, true
	case receipts.AttemptSucceeded:
		return settlement.Event{Fact: settlement.Executed, Paid: paid}, true
	case receipts.Reconciled, receipts.AnsweredLate:
		if executed {
			return settlement.Event{Fact: settlement.Executed, Paid: paid}, true
		}
		return settlement.Event{Fact: settlement.Reconciled}, transition == receipts.Reconciled
	}
	return settlement.Event{}, false
}

// SettlementSnapshot converts a settlement to its form in receipts.
func SettlementSnapshot(s settlement.State) *receipts.SettlementSnapshot {
	return &receipts.SettlementSnapshot{
		Asked: s.Asked, DisputeLifecycleStatus: string(s.Lifecycle), EscrowAdjudication: string(s.Outcome), Generation: s.Generation,
		Moved: s.Moved, Refunded: s.Refunded, Released: s.Released, Reserved: s.Reserved, Returned: s.Returned, ProgressionReason: s.Reason,
		ProgressionReasonCode: string(s.ReasonCode), ProgressionStatus: string(s.Progression),
	}
}
