package postadjudication

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
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
	InvariantOrder     = "the order of events has no gap and no stranger"
)

// Invariants lists the names in the order of a report.
var Invariants = []string{InvariantAccounted, InvariantBudgets, InvariantLetters, InvariantChains, InvariantFold, InvariantEscrows, InvariantOrder}

// Audit is what a check of a tenant's, or everybody's, whole trail found.
type Audit struct {
	Cases         int               `json:"cases"`
	Runs          int               `json:"runs"`
	Receipts      int64             `json:"receipts"`
	Chains        int               `json:"chains_verified"`
	EarlyAttempts int               `json:"early_attempts"`
	Broken        map[string]string `json:"broken"`        // invariant -> the first thing that broke it
	Breaks        []Break           `json:"breaks"`        // everything that was found broken, up to MaxBreaks
	InAll         int               `json:"breaks_in_all"` // also those beyond MaxBreaks

	Archive *ArchiveAudit `json:"archive,omitempty"` // what AuditQuery.Archive was found to hold

	// Heads has the last receipt of each chain, of a broken one the last before what is broken.
	Heads map[receipts.CaseID]receipts.Head `json:"-"`
	Cut   map[receipts.CaseID]int64         `json:"-"` // of a broken chain: the sequence of its first broken receipt

	tenants       map[receipts.CaseID]string // whose each of Heads is
	told          map[string]bool            // what is told once, and was
	maxRecoveries int                        // as AuditQuery has it
}

// AuditQuery says what is audited, and who is told how far that has got.
type AuditQuery struct {
	Tenants []string // everybody when there is none
	// Case is the only one that is audited, of the one tenant, as AuditCase says; the zero
	// value is all of them.
	Case receipts.CaseID
	// MaxRecoveries is how many workers a run may lose, as the processes that execute are
	// configured; what this process is configured for when 0, any number when negative.
	MaxRecoveries int
	Archive       Archive // where the files that receipts name are compared with them; nil: they are not
	// Progress is called now and then, from the goroutine that audits: which part is worked
	// on, and how many of all cases are done. May be nil.
	Progress func(part string, done, of int)
}

// Audit reads the whole trail of a tenant, or of every tenant when none is named,
// and checks it against the stored state. It reads case by case, in memory that
// does not grow, and may run while others write: a case that seems wrong is read
// again in one transaction before it is called broken.
func (s *Service) Audit(ctx context.Context, tenants ...string) (*Audit, error) {
	return s.AuditAll(ctx, AuditQuery{Tenants: tenants})
}

// AuditAll is Audit that tells how far it has got.
func (s *Service) AuditAll(ctx context.Context, q AuditQuery) (*Audit, error) {
	a, tenants := newAudit(), q.Tenants
	a.maxRecoveries = cmp.Or(q.MaxRecoveries, s.recoveries)
	if !q.Case.IsZero() {
		if len(tenants) != 1 {
			return nil, errors.New("postadjudication: AuditQuery.Case needs its one tenant")
		}
		return s.auditAlone(ctx, a.maxRecoveries, tenants[0], q.Case, q.Archive)
	}
	if len(tenants) == 0 {
		var err error
		if tenants, err = s.journal.Tenants(ctx); err != nil {
			return nil, err
		}
		if err := s.auditOrphanOperations(ctx, a); err != nil {
			return nil, err
		}
	}
	files := newArchiveCheck(q.Archive)
	if q.Archive != nil {
		a.Archive = &files.found
	}
	tell, err := s.auditProgress(ctx, q.Progress, tenants)
	if err != nil {
		return a, err
	}
	for _, tenant := range tenants {
		if err := s.auditTenant(ctx, a, tenant, files, tell); err != nil {
			return a, err
		}
	}
	tell("the order of events", a.Cases)
	return a, s.auditOrder(ctx, a, tenants, len(q.Tenants) == 0)
}

// auditEvery is after how many cases progress is told.
const auditEvery = 100

// auditProgress gives what tells of progress, for which it counts the cases first.
func (s *Service) auditProgress(ctx context.Context, progress func(string, int, int), tenants []string) (func(part string, done int), error) {
	if progress == nil {
		return func(string, int) {}, nil
	}
	of, err := s.journal.CountCases(ctx, tenants)
	return func(part string, done int) { progress(part, done, of) }, err
}

func (s *Service) auditTenant(ctx context.Context, a *Audit, tenant string, files *archiveCheck, tell func(string, int)) error {
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
		found, last, err := s.auditOne(ctx, a, tenant, runs, own)
		if err != nil {
			return err
		}
		a.add(found)
		if a.Cases%auditEvery == 0 {
			tell("cases", a.Cases)
		}
		if err := errors.Join(desks.note(ctx, a, own), files.note(ctx, a, site{tenant: tenant, kase: kase}, own)); err != nil {
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
	tell("keys, policies and lists", a.Cases)
	err = errors.Join(desks.end(ctx, a), s.auditOperations(ctx, a, tenant), s.auditPolicies(ctx, a, tenant), s.auditHandlers(ctx, a, tenant), s.auditList(ctx, a, tenant, receipts.CaseID{}), s.auditKeys(ctx, a, tenant), s.auditPeople(ctx, a, tenant), s.auditOrphans(ctx, a, tenant))
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
		_, operations, err = s.journal.OperationsAtOnce(ctx, tenant, kase)
	}
	if operations {
		return // has no runs, and is audited as such
	}
	if err != nil || len(runs) == 0 {
		a.fail(InvariantChains, site{tenant: tenant, kase: kase}, "case %s: %d receipts, and no case (%v)", kase, len(trail), err)
	}
}

// auditOne audits a case; one that seems wrong is read again at one moment first.
func (s *Service) auditOne(ctx context.Context, whole *Audit, tenant string, runs []postgres.Snapshot, rs []receipts.Receipt) (*Audit, postgres.Case, error) {
	if len(rs) > 0 {
		if found := auditCase(runs, rs, whole.maxRecoveries); found.OK() {
			return found, runs[0].Case, nil
		}
	}
	runs, rs, err := s.journal.CaseAtOnce(ctx, tenant, runs[0].Case.ID)
	if err != nil || len(runs) == 0 {
		return nil, postgres.Case{}, errors.Join(err, errGone)
	}
	return auditCase(runs, rs, whole.maxRecoveries), runs[0].Case, nil
}

var errGone = errors.New("postadjudication: a case vanished while it was audited")

func (s *Service) auditEscrows(ctx context.Context, a *Audit, tenant string, sums map[string]int64) error {
	escrows, err := s.journal.Escrows(ctx, tenant)
	if err != nil {
		return err
	}
	for _, e := range escrows {
		if err := s.auditEscrow(ctx, a, tenant, e, sums[e.Reference]); err != nil {
			return err
		}
	}
	return nil
}

// auditEscrow compares an escrow with the sum of its cases, and what it committed with
// what it holds. A sum that seems wrong is read again at one moment first.
func (s *Service) auditEscrow(ctx context.Context, a *Audit, tenant string, e postgres.Escrow, sum int64) (err error) {
	if e.Committed != sum {
		if e, sum, err = s.journal.EscrowAtOnce(ctx, tenant, e.Reference); err != nil {
			return err
		}
	}
	if e.Committed != sum {
		a.differ(InvariantEscrows, site{tenant: tenant}, strconv.FormatInt(e.Committed, 10), strconv.FormatInt(sum, 10), "escrow %s of %s: committed %d, its cases add up to %d", e.Reference, tenant, e.Committed, sum)
	}
	if folded := e.Committed - e.Open; folded > e.Held+e.Breached {
		a.fail(InvariantEscrows, site{tenant: tenant}, "escrow %s of %s: committed %d of %d held", e.Reference, tenant, folded, e.Held)
	}
	return nil
}

// auditCase checks one case: its stored runs against its receipts.
func auditCase(runs []postgres.Snapshot, rs []receipts.Receipt, maxRecoveries int) *Audit {
	c := runs[0].Case
	a, at := newAudit(), site{tenant: c.Tenant, kase: c.ID}
	a.maxRecoveries = maxRecoveries
	a.Cases, a.Runs, a.Receipts = 1, len(runs), int64(len(rs))
	a.chain(at, c.Head, rs)
	a.EarlyAttempts = earlyAttempts(rs)
	history, err := receipts.Fold(rs)
	if err != nil {
		var illegal *receipts.Illegal
		if errors.As(err, &illegal) {
			at = at.at(illegal.Seq)
		}
		a.fail(InvariantBudgets, at, "%v", err)
		return a
	}
	auditRuns(a, at, runs, history)
	auditBinding(a, at, runs, rs)
	if c.Kind == postgres.KindSettlement {
		auditSettlement(a, at, runs, rs, history)
	}
	return a
}

// chain checks the chain of a case, every receipt of it, and that it ends where the case
// says that it does.
func (a *Audit) chain(at site, stored receipts.Head, rs []receipts.Receipt) {
	head, end, broken := receipts.Verifier{}.VerifyAll(at.kase, rs)
	for _, b := range broken {
		a.differ(InvariantChains, at.at(b.Seq), b.Stored, b.Expected, "%v", b)
	}
	if end != stored {
		a.differ(InvariantChains, at, headWords(stored), headWords(end), "case %s: the trail ends at %d, the case says %d", at.kase, end.Seq, stored.Seq)
	}
	switch {
	case len(broken) > 0:
		a.Cut[at.kase] = broken[0].Seq
	case end == stored:
		a.Chains++
	}
	a.Heads[at.kase], a.tenants[at.kase] = head, at.tenant
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

func auditSettlement(a *Audit, at site, runs []postgres.Snapshot, rs []receipts.Receipt, history receipts.History) {
	c := runs[0].Case
	told, err := refold(rs)
	if first := runs[0].Run.FirstSentAt; !first.Equal(history.FirstSentAt) {
		a.differ(InvariantFold, at, first.Format(time.RFC3339Nano), history.FirstSentAt.Format(time.RFC3339Nano), "case %s: first sent at %s under its operation key, the receipts say %s", c.ID, first, history.FirstSentAt)
	}
	if err != nil {
		a.fail(InvariantFold, at, "case %s: %v", c.ID, err)
		return
	}
	if told.state != c.State {
		settlementDiffers(c.State, told.state).fail(a, at, "case "+c.ID.String())
	}
	for _, s := range runs {
		if s.Run.Letter == background.LetterOpen && c.State.Progression != settlement.DisputeReady && !c.State.Progression.Ended() {
			a.fail(InvariantLetters, at.of(s.Run.ID), "run %s is an open letter, its case is %q", s.Run.ID, c.State.Progression)
		}
	}
	holders := 0
	for _, s := range runs {
		if s.Run.Holds() {
			holders++
		}
	}
	if holders > 1 {
		a.fail(InvariantAccounted, at, "case %s is held by %d runs", c.ID, holders)
	}
	if holders == 0 && !atRest(runs) {
		a.fail(InvariantAccounted, at, "case %s is %q, and no run or letter carries it", c.ID, c.State.Progression)
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
func auditRuns(a *Audit, at site, runs []postgres.Snapshot, h receipts.History) {
	if len(h.Runs) != len(runs) {
		a.differ(InvariantAccounted, at, strconv.Itoa(len(runs)), strconv.Itoa(len(h.Runs)), "case %s: %d runs stored, the receipts tell of %d", h.Case, len(runs), len(h.Runs))
	}
	for _, s := range runs {
		r, told := s.Run, h.Runs[s.Run.ID]
		runDiffers(r, told).fail(a, at.of(r.ID), "run "+r.ID.String())
		auditCalls(a, at.of(r.ID), r, told)
		if limit := r.Policy.Normalize().MaxRetryAttempts; r.BudgetSpent > limit {
			a.fail(InvariantBudgets, at.of(r.ID), "run %s spent %d attempts of %d", r.ID, r.BudgetSpent, limit)
		}
		if limit := a.recoveries(r); limit >= 0 && r.Recoveries > limit {
			a.fail(InvariantBudgets, at.of(r.ID), "run %s lost %d workers, and may lose %d", r.ID, r.Recoveries, limit)
		}
		deaths := 0
		for _, at := range told.Attempt {
			if at.EndedBy == receipts.DeadLettered {
				deaths++
			}
		}
		if deaths > 1 || (r.State == background.DeadLettered) == told.DeadAt.IsZero() {
			a.fail(InvariantLetters, at.of(r.ID), "run %s: state %s, %d deaths told", r.ID, r.State, deaths)
		}
	}
	if h.UnknownOpen != runs[0].Run.UnknownOpen {
		a.differ(InvariantFold, at, strconv.Itoa(runs[0].Run.UnknownOpen), strconv.Itoa(h.UnknownOpen), "case %s: %d unknown attempts stored, the receipts say %d", h.Case, runs[0].Run.UnknownOpen, h.UnknownOpen)
	}
}

// DefaultMaxRecoveries is how many workers a run may lose before it ends as a dead letter,
// where nothing else is configured.
const DefaultMaxRecoveries = 5

// recoveries is how many lost workers a run may count; any number when it is negative. The
// loss that it died of was counted by programs before.
func (a *Audit) recoveries(r background.Run) int {
	switch {
	case a.maxRecoveries < 0:
		return -1
	case r.Reason == background.ReasonPoisonPill:
		return cmp.Or(a.maxRecoveries, DefaultMaxRecoveries) + 1
	}
	return cmp.Or(a.maxRecoveries, DefaultMaxRecoveries)
}

// auditCalls compares the calls of a run that are stored as outstanding with its receipts.
func auditCalls(a *Audit, at site, r background.Run, told receipts.RunHistory) {
	for _, attempt := range told.OutstandingCalls() {
		if !slices.Contains(r.OutstandingCalls, attempt) {
			a.fail(InvariantFold, at, "run %s: the call of attempt %d has not come back, and is not stored as outstanding", r.ID, attempt)
		}
	}
	for _, attempt := range r.OutstandingCalls {
		if !told.MayBeOut(attempt) {
			a.fail(InvariantFold, at, "run %s: the call of attempt %d is stored as outstanding, the receipts say it is not", r.ID, attempt)
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
