package bulk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// MaxReturns is the maximum number of returned payments in a plan.
const MaxReturns = 1_000

// ReturnedPayment is a payment, or a part of it, that came back: a line of a bank's file of returns.
type ReturnedPayment struct {
	Transaction string           `json:"transaction_receipt_id"` // whose payment came back
	Amount      settlement.Money `json:"amount"`                 // how much of it
	Reference   string           `json:"reference"`              // the bank's own: it identifies the return in its tenant, so that it is recorded once
	ReturnedAt  time.Time        `json:"returned_at,omitzero"`   // when, as the bank says
	Run         background.RunID `json:"run_id,omitzero"`        // that made the payment; needed where several runs of the transaction have paid
}

// ReturnsRequest is what a person, or a file, says of payments that came back.
type ReturnsRequest struct {
	Returns []ReturnedPayment // 1 to MaxReturns
	Reason  string            // required
	Request string            // identifies the request that asks for the plan, so that it makes one plan only; empty: none
}

// PlannedReturns is what became of each returned payment of a request.
type PlannedReturns struct {
	Plan    *Plan            `json:"plan,omitempty"` // of those that are new; nil: none is
	Known   []string         `json:"known"`          // references of those that are recorded
	Refused []ReturnsRefused `json:"refused"`        // those that can't be recorded
}

// ReturnsRefused is a returned payment that can't be recorded.
type ReturnsRefused struct {
	Reference string       `json:"reference"`
	Gate      refusal.Gate `json:"refused_by,omitempty"`
	Why       string       `json:"why"`
}

// PlanReturns stores a plan to record payments that came back, and changes nothing else. The plan has one item for
// each case. Run runs it: receipts returned are written, the sums that the cases have committed of their escrows fall by
// what came back, and a case on which no run works becomes dispute-ready, so that a higher generation may follow.
//
// A return is a fact, which no state of a case refuses; but never comes back more than was paid. It is identified by its
// reference: one that is recorded already is answered as known, and one with another amount or transaction is refused.
// Where the tenant requires one person only, the plan is started at once.
//
// Errors: *FieldError of what is wrong with a returned payment, whose fields begin with returns[N].
func (p Plans) PlanReturns(ctx context.Context, q ReturnsRequest) (PlannedReturns, error) {
	if err := q.validate(p.tenant, p.actor, p.s.now()); err != nil {
		return PlannedReturns{}, err
	}
	if before, made, err := p.s.madeFor(ctx, p.tenant, q.Request); made || err != nil {
		return PlannedReturns{Plan: &before, Known: []string{}, Refused: []ReturnsRefused{}}, err
	}
	if err := p.checkReferences(ctx, q.Returns); err != nil {
		return PlannedReturns{}, err
	}
	b := returnsBuilder{Planner: p.s, tenant: p.tenant, byCase: map[string]*casePlan{}, out: PlannedReturns{Known: []string{}, Refused: []ReturnsRefused{}}}
	if err := b.addAll(ctx, q.Returns); err != nil || len(b.items) == 0 {
		return b.out, err
	}
	plan, err := p.s.storePlan(ctx, plans.Plan{MadeFor: q.Request, Tenant: p.tenant, Action: string(Return), Actor: p.actor, Reason: q.Reason}, Spec{Returns: b.planned}, b.items)
	if err == nil && plan.People == 1 && !access.IsProgram(p.actor) {
		plan, err = p.Run(ctx, plan.ID, plan.Hash)
	}
	b.out.Plan = &plan
	return b.out, err
}

func (q *ReturnsRequest) validate(tenant, actor string, now time.Time) error {
	errs := []error{validate.Change(tenant, actor, q.Reason)}
	if len(q.Returns) < 1 || len(q.Returns) > MaxReturns {
		errs = append(errs, &refusal.FieldError{Field: "returns", Problem: fmt.Sprintf("must be 1 to %d", MaxReturns)})
		return errors.Join(errs...)
	}
	seen := map[string]ReturnedPayment{}
	for i, r := range q.Returns {
		at := fmt.Sprintf("returns[%d].", i)
		errs = append(errs, validate.KnownID(at+"transaction_receipt_id", r.Transaction, settlement.MaxIDBytes), validate.KnownID(at+"reference", r.Reference, 255), validate.IDForm(at+"reference", r.Reference), r.Amount.Validate(at+"amount"))
		if r.ReturnedAt.After(now.Add(24 * time.Hour)) { // a date of the bank may be one of a zone that is ahead
			errs = append(errs, &refusal.FieldError{Field: at + "returned_at", Problem: "must not be in the future"})
		}
		if before, twice := seen[r.Reference]; twice && before != r {
			errs = append(errs, &refusal.FieldError{Field: at + "reference", Problem: "is that of another one: a reference identifies a return"})
		}
		seen[r.Reference] = r
	}
	return errors.Join(errs...)
}

// checkReferences refuses references that hold a secret, or spell a reference of a bank in another way than its canonical one.
func (p Plans) checkReferences(ctx context.Context, returns []ReturnedPayment) error {
	var errs []error
	for i, r := range returns {
		_, err := p.s.applier.Settlements.References.Stated(ctx, p.tenant, fmt.Sprintf("returns[%d].reference", i), r.Reference)
		if err != nil && !errors.As(err, new(*refusal.FieldError)) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// returnsBuilder builds a plan of returned payments.
type returnsBuilder struct {
	*Planner
	tenant  string
	byCase  map[string]*casePlan // by transaction
	planned []ReturnedPayment
	items   []plans.Item
	out     PlannedReturns
}

// casePlan is a case of which payments came back.
type casePlan struct {
	seen     journal.Snapshot
	payments []binding.Payment // less what the plan has of them
	item     int               // its index
	refused  *ReturnsRefused   // without the reference: why none of it can be recorded
}

func (b *returnsBuilder) addAll(ctx context.Context, returns []ReturnedPayment) error {
	references := make([]string, len(returns))
	for i := range returns {
		references[i] = returns[i].Reference
	}
	recorded, err := b.journal.Cases.Returns(ctx, b.tenant, references)
	if err != nil {
		return err
	}
	added := map[string]bool{}
	for i, r := range returns {
		known, isKnown := recorded[r.Reference]
		switch {
		case added[r.Reference]:
			continue
		case isKnown && known.Subject == r.Transaction && known.Amount == r.Amount:
			b.out.Known = append(b.out.Known, r.Reference)
		case isKnown:
			b.refuse(r, refusal.GateReferenceUsed, fmt.Sprintf("a return of %s of transaction %s has this reference", known.Amount, known.Subject))
		default:
			if err := b.add(ctx, i, r); err != nil {
				return err
			}
		}
		added[r.Reference] = true
	}
	return nil
}

func (b *returnsBuilder) refuse(r ReturnedPayment, gate refusal.Gate, why string) {
	b.out.Refused = append(b.out.Refused, ReturnsRefused{Reference: r.Reference, Gate: gate, Why: why})
}

// add adds a returned payment to the item of its case, or says why it can't be recorded.
func (b *returnsBuilder) add(ctx context.Context, index int, r ReturnedPayment) error {
	c, err := b.caseOf(ctx, r.Transaction)
	if err != nil {
		return err
	}
	if c.refused != nil {
		b.refuse(r, c.refused.Gate, c.refused.Why)
		return nil
	}
	paid, err := c.paymentOf(fmt.Sprintf("returns[%d].run_id", index), r)
	switch {
	case err != nil:
		return err
	case r.Amount.Currency != c.seen.Case.Currency:
		return &refusal.FieldError{Field: fmt.Sprintf("returns[%d].amount.currency", index), Problem: "must be " + c.seen.Case.Currency + ", that of the escrow"}
	case paid == nil || r.Amount.Minor > paid.Left():
		b.refuse(r, refusal.GateExceedsPaid, refusal.GateExceedsPaid.Meaning())
		return nil
	}
	paid.Returned += r.Amount.Minor
	r.Run = paid.Run
	b.planned = append(b.planned, r)
	if c.item < 0 {
		c.item = len(b.items)
		item := itemFor(int64(len(b.items)+1), c.seen, "")
		item.Run, item.Amount = r.Run, 0
		b.items = append(b.items, item)
	}
	b.items[c.item].Amount += r.Amount.Minor
	return nil
}

// caseOf reads the case of a transaction and what it has paid, once.
func (b *returnsBuilder) caseOf(ctx context.Context, transaction string) (*casePlan, error) {
	if c := b.byCase[transaction]; c != nil {
		return c, nil
	}
	c := &casePlan{item: -1}
	b.byCase[transaction] = c
	var err error
	c.seen, err = b.journal.Cases.SubjectSnapshot(ctx, b.tenant, journal.KindSettlement, transaction)
	if errors.Is(err, refusal.ErrNotFound) {
		c.refused = &ReturnsRefused{Why: "no case has this transaction"}
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	folded, err := b.applier.Payments(ctx, &c.seen)
	if errors.Is(err, casework.ErrReceiptsDiffer) {
		c.refused = &ReturnsRefused{Why: err.Error()}
		return c, nil
	}
	c.payments = folded.Payments()
	return c, err
}

// paymentOf returns the payment that came back: that of the run that is named, or the only one of which anything is left.
// It returns nil if there is none, and a *FieldError if there are several.
func (c *casePlan) paymentOf(field string, r ReturnedPayment) (found *binding.Payment, err error) {
	for i := range c.payments {
		p := &c.payments[i]
		switch {
		case !r.Run.IsZero() && p.Run == r.Run:
			return p, nil
		case !r.Run.IsZero() || p.Left() == 0:
		case found != nil:
			return nil, &refusal.FieldError{Field: field, Problem: fmt.Sprintf("must be given: the runs %s and %s of the transaction have paid", found.Run, p.Run)}
		default:
			found = p
		}
	}
	return found, nil
}

// recordReturns records the returned payments of an item's case.
func (w *planWork) recordReturns(ctx context.Context, i *plans.Item, guard casework.Guard) error {
	found, err := w.journal.Letters.ByID(ctx, i.Run)
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Run.Tenant != w.plan.Tenant {
		return refusal.ErrNotFound
	}
	var came []casework.Return
	for _, r := range w.spec.Returns {
		if r.Transaction == found[0].Case.Subject {
			came = append(came, casework.Return{Run: r.Run, Amount: r.Amount.Minor, Reference: r.Reference, At: r.ReturnedAt})
		}
	}
	return w.applier.RecordReturns(ctx, found[0], w.plan.StartedBy, w.plan.Reason, came, guard)
}
