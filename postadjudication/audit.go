package postadjudication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// The invariants that Audit checks; each must hold after any fault.
const (
	InvariantAccounted = "every accepted adjudication is accounted for"
	InvariantBudgets   = "budgets kept, no attempt before its time"
	InvariantLetters   = "every open letter has its one receipt and event and its case is dispute-ready"
	InvariantChains    = "every chain verifies"
	InvariantFold      = "stored state equals the fold of the receipts"
	InvariantEscrows   = "escrow sums equal the cases' sums"
)

// Invariants lists the names in the order of a report.
var Invariants = []string{InvariantAccounted, InvariantBudgets, InvariantLetters, InvariantChains, InvariantFold, InvariantEscrows}

// Audit is what a check of a tenant's, or everybody's, whole trail found.
type Audit struct {
	Cases         int                               `json:"cases"`
	Runs          int                               `json:"runs"`
	Receipts      int64                             `json:"receipts"`
	Chains        int                               `json:"chains_verified"`
	EarlyAttempts int                               `json:"early_attempts"`
	Broken        map[string]string                 `json:"broken"` // invariant -> the first thing that broke it
	Heads         map[receipts.CaseID]receipts.Head `json:"-"`
}

// OK reports whether nothing was broken.
func (a *Audit) OK() bool { return len(a.Broken) == 0 }

// Verdict is "ok" or what broke the invariant.
func (a *Audit) Verdict(invariant string) string {
	if what, ok := a.Broken[invariant]; ok {
		return what
	}
	return "ok"
}

func (a *Audit) fail(invariant, format string, args ...any) {
	if _, ok := a.Broken[invariant]; !ok {
		a.Broken[invariant] = fmt.Sprintf(format, args...)
	}
}

// Audit reads the whole trail of a tenant, or of every tenant when none is named,
// and checks it against the stored state. It reads case by case, in memory that
// does not grow, and may run while others write: a case that seems wrong is read
// again in one transaction before it is called broken.
func (s *Service) Audit(ctx context.Context, tenants ...string) (*Audit, error) {
	a := &Audit{Broken: map[string]string{}, Heads: map[receipts.CaseID]receipts.Head{}}
	if len(tenants) == 0 {
		var err error
		if tenants, err = s.journal.Tenants(ctx); err != nil {
			return nil, err
		}
		if err := s.auditOrphanOperations(ctx, a); err != nil {
			return nil, err
		}
	}
	for _, tenant := range tenants {
		if err := s.auditTenant(ctx, a, tenant); err != nil {
			return a, err
		}
	}
	return a, s.auditOrder(ctx, a, tenants)
}

func (s *Service) auditTenant(ctx context.Context, a *Audit, tenant string) error {
	trail, stop := iter.Pull2(perCase(s.journal.AllReceipts(ctx, tenant)))
	defer stop()
	sums, desks := map[string]int64{}, s.newDeskAudit(tenant)
	rs, err, ok := trail()
	for runs, caseErr := range s.journal.Cases(ctx, tenant) {
		if err := errors.Join(caseErr, err); err != nil {
			return err
		}
		kase := runs[0].Case.ID
		for ok && bytes.Compare(rs[0].Case[:], kase[:]) < 0 {
			a.orphaned(ctx, s, tenant, rs[0].Case)
			if rs, err, ok = trail(); err != nil {
				return err
			}
		}
		var own []receipts.Receipt
		if ok && rs[0].Case == kase {
			own = rs
			rs, err, ok = trail()
		}
		found, last, err := s.auditOne(ctx, tenant, runs, own)
		if err != nil {
			return err
		}
		a.add(found)
		if err := desks.note(ctx, a, own); err != nil {
			return err
		}
		if last.Escrow != 0 {
			sums[last.Reference] += last.State.Reserved + last.State.Released + last.State.Refunded
		}
	}
	for ; ok && err == nil; rs, err, ok = trail() {
		a.orphaned(ctx, s, tenant, rs[0].Case)
	}
	if err != nil {
		return err
	}
	err = errors.Join(desks.end(ctx, a), s.auditOperations(ctx, a, tenant), s.auditPolicies(ctx, a, tenant), s.auditHandlers(ctx, a, tenant), s.auditList(ctx, a, tenant), s.auditKeys(ctx, a, tenant), s.auditPeople(ctx, a, tenant), s.auditOrphans(ctx, a, tenant))
	if err != nil {
		return err
	}
	return s.auditEscrows(ctx, a, tenant, sums)
}

// orphaned breaks the chains if receipts tell of a case that is not stored.
func (a *Audit) orphaned(ctx context.Context, s *Service, tenant string, kase receipts.CaseID) {
	runs, trail, err := s.journal.CaseAtOnce(ctx, tenant, kase)
	var operations bool
	if err == nil && len(runs) == 0 {
		_, _, operations, err = s.journal.OperationsAtOnce(ctx, tenant, kase)
	}
	if operations {
		return // has no runs, and is audited as such
	}
	if err != nil || len(runs) == 0 {
		a.fail(InvariantChains, "case %s: %d receipts, and no case (%v)", kase, len(trail), err)
	}
}

// auditOne audits a case; one that seems wrong is read again at one moment first.
func (s *Service) auditOne(ctx context.Context, tenant string, runs []postgres.Snapshot, rs []receipts.Receipt) (*Audit, postgres.Case, error) {
	if len(rs) > 0 {
		if found := auditCase(runs, rs); found.OK() {
			return found, runs[0].Case, nil
		}
	}
	runs, rs, err := s.journal.CaseAtOnce(ctx, tenant, runs[0].Case.ID)
	if err != nil || len(runs) == 0 {
		return nil, postgres.Case{}, errors.Join(err, errGone)
	}
	return auditCase(runs, rs), runs[0].Case, nil
}

var errGone = errors.New("postadjudication: a case vanished while it was audited")

func (a *Audit) add(b *Audit) {
	a.Cases += b.Cases
	a.Runs += b.Runs
	a.Receipts += b.Receipts
	a.Chains += b.Chains
	a.EarlyAttempts += b.EarlyAttempts
	for k, v := range b.Heads {
		a.Heads[k] = v
	}
	for k, v := range b.Broken {
		a.fail(k, "%s", v)
	}
}

func (s *Service) auditEscrows(ctx context.Context, a *Audit, tenant string, sums map[string]int64) error {
	escrows, err := s.journal.Escrows(ctx, tenant)
	if err != nil {
		return err
	}
	for _, e := range escrows {
		if e.Committed != sums[e.Reference] {
			if e.Committed, sums[e.Reference], err = s.journal.EscrowSums(ctx, tenant, e.Reference); err != nil {
				return err
			}
		}
		if e.Committed != sums[e.Reference] {
			a.fail(InvariantEscrows, "escrow %s of %s: committed %d, its cases add up to %d", e.Reference, tenant, e.Committed, sums[e.Reference])
		}
		if folded := e.Committed - e.Open; folded > e.Held+e.Breached {
			a.fail(InvariantEscrows, "escrow %s of %s: committed %d of %d held", e.Reference, tenant, folded, e.Held)
		}
	}
	return nil
}

// auditCase checks one case: its stored runs against its receipts.
func auditCase(runs []postgres.Snapshot, rs []receipts.Receipt) *Audit {
	c := runs[0].Case
	a := &Audit{Cases: 1, Runs: len(runs), Receipts: int64(len(rs)), Broken: map[string]string{}, Heads: map[receipts.CaseID]receipts.Head{}}
	head, err := receipts.Verifier{}.Verify(c.ID, rs)
	switch {
	case err != nil:
		a.fail(InvariantChains, "%v", err)
	case head != c.Head:
		a.fail(InvariantChains, "case %s: the trail ends at %d, the case says %d", c.ID, head.Seq, c.Head.Seq)
	default:
		a.Chains = 1
	}
	a.Heads[c.ID] = head
	a.EarlyAttempts = earlyAttempts(rs)
	history, err := receipts.Fold(rs)
	if err != nil {
		a.fail(InvariantBudgets, "%v", err)
		return a
	}
	auditRuns(a, runs, history)
	auditBinding(a, runs, rs)
	if c.Kind == postgres.KindSettlement {
		auditSettlement(a, runs, rs, history)
	}
	return a
}

// earlyAttempts counts attempts that started before the time their run was given.
func earlyAttempts(rs []receipts.Receipt) (n int) {
	due := map[receipts.RunID]time.Time{}
	for _, r := range rs {
		switch r.Subtype {
		case receipts.RetryScheduled, receipts.AttemptInterrupted:
			if p, err := r.Payload(); err == nil {
				due[r.Run] = p.NextRetryAt
			}
		case receipts.AttemptStarted:
			if r.At.Before(due[r.Run]) {
				n++
			}
		}
	}
	return n
}

func auditSettlement(a *Audit, runs []postgres.Snapshot, rs []receipts.Receipt, history receipts.History) {
	c := runs[0].Case
	state, err := refold(rs)
	if first := runs[0].Run.FirstSentAt; !first.Equal(history.FirstSentAt) {
		a.fail(InvariantFold, "case %s: first sent at %s under its operation key, the receipts say %s", c.ID, first, history.FirstSentAt)
	}
	if err != nil {
		a.fail(InvariantFold, "case %s: %v", c.ID, err)
		return
	}
	if state != c.State {
		a.fail(InvariantFold, "case %s: stored %+v, receipts say %+v", c.ID, c.State, state)
	}
	for _, s := range runs {
		if s.Run.Letter == background.LetterOpen && c.State.Progression != settlement.DisputeReady && !c.State.Progression.Ended() {
			a.fail(InvariantLetters, "run %s is an open letter, its case is %q", s.Run.ID, c.State.Progression)
		}
	}
	holders := 0
	for _, s := range runs {
		if s.Run.Holds() {
			holders++
		}
	}
	if holders > 1 {
		a.fail(InvariantAccounted, "case %s is held by %d runs", c.ID, holders)
	}
	if holders == 0 && !atRest(runs) {
		a.fail(InvariantAccounted, "case %s is %q, and no run or letter carries it", c.ID, c.State.Progression)
	}
}

// atRest reports whether a case without a live run or open letter is where one may
// be left: settled in full or in part, cancelled, or its letter let go.
func atRest(runs []postgres.Snapshot) bool {
	switch p := runs[0].Case.State.Progression; p {
	case settlement.Settled, settlement.Refunded, settlement.PartiallySettled, settlement.ReviewNeeded:
		return true
	case settlement.DisputeReady:
		return runs[len(runs)-1].Run.Letter == background.LetterPurged
	}
	return false
}

// auditRuns compares each stored run with what the receipts tell of it.
func auditRuns(a *Audit, runs []postgres.Snapshot, h receipts.History) {
	if len(h.Runs) != len(runs) {
		a.fail(InvariantAccounted, "case %s: %d runs stored, the receipts tell of %d", h.Case, len(runs), len(h.Runs))
	}
	for _, s := range runs {
		r, told := s.Run, h.Runs[s.Run.ID]
		if told.State != string(r.State) || told.Letter != string(r.Letter) || told.Attempts != r.Attempt ||
			told.BudgetSpent != r.BudgetSpent || told.Recoveries != r.Recoveries || told.Class != string(r.Class) {
			a.fail(InvariantFold, "run %s: stored %s/%s/%d/%d/%d/%s, the receipts say %s/%s/%d/%d/%d/%s", r.ID,
				r.State, r.Letter, r.Attempt, r.BudgetSpent, r.Recoveries, r.Class,
				told.State, told.Letter, told.Attempts, told.BudgetSpent, told.Recoveries, told.Class)
		}
		auditCalls(a, r, told)
		if limit := r.Policy.Normalize().MaxRetryAttempts; r.BudgetSpent > limit {
			a.fail(InvariantBudgets, "run %s spent %d attempts of %d", r.ID, r.BudgetSpent, limit)
		}
		deaths := 0
		for _, at := range told.Attempt {
			if at.EndedBy == receipts.DeadLettered {
				deaths++
			}
		}
		if deaths > 1 || (r.State == background.DeadLettered) == told.DeadAt.IsZero() {
			a.fail(InvariantLetters, "run %s: state %s, %d deaths told", r.ID, r.State, deaths)
		}
	}
	if h.UnknownOpen != runs[0].Run.UnknownOpen {
		a.fail(InvariantFold, "case %s: %d unknown attempts stored, the receipts say %d", h.Case, runs[0].Run.UnknownOpen, h.UnknownOpen)
	}
}

// auditCalls compares the calls of a run that are stored as outstanding with its receipts.
func auditCalls(a *Audit, r background.Run, told receipts.RunHistory) {
	for _, attempt := range told.OutstandingCalls() {
		if !slices.Contains(r.OutstandingCalls, attempt) {
			a.fail(InvariantFold, "run %s: the call of attempt %d has not come back, and is not stored as outstanding", r.ID, attempt)
		}
	}
	for _, attempt := range r.OutstandingCalls {
		if !told.MayBeOut(attempt) {
			a.fail(InvariantFold, "run %s: the call of attempt %d is stored as outstanding, the receipts say it is not", r.ID, attempt)
		}
	}
}

// perCase groups a stream that is ordered by case.
func perCase(rs iter.Seq2[receipts.Receipt, error]) iter.Seq2[[]receipts.Receipt, error] {
	return func(yield func([]receipts.Receipt, error) bool) {
		var group []receipts.Receipt
		for r, err := range rs {
			if err != nil {
				yield(nil, err)
				return
			}
			if len(group) > 0 && group[0].Case != r.Case {
				if !yield(group, nil) {
					return
				}
				group = nil
			}
			group = append(group, r)
		}
		if len(group) > 0 {
			yield(group, nil)
		}
	}
}
