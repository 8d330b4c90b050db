package journal

import (
	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Kind is the kind of a case.
type Kind string

// The kinds of case.
const (
	KindSettlement Kind = stored.KindSettlement
	KindPlain      Kind = stored.KindPlain
	KindOperations Kind = stored.KindOperations // has receipts but no run
)

// Case is a row of cases as it was read. Head is its version: every transition is written
// against the head that it was decided on.
type Case struct {
	ID         receipts.CaseID
	Tenant     string
	Kind       Kind
	Subject    string // transaction receipt id; "<family>:<retry key>" for plain families
	Escrow     int64  // row id; 0 for plain families
	Reference  string // the escrow's
	Currency   string
	Held       int64
	Submission string // submission receipt id of the current generation
	Content    [32]byte
	State      settlement.State
	ActiveRun  background.RunID // the run that is live or has the open dead letter; if there is none, the last such run
	Epoch      int
	Head       receipts.Head
}

// Snapshot is a run and its case at one moment.
type Snapshot struct {
	Case Case
	Run  background.Run
}

// RunChange is the change of another run than that of After.
type RunChange struct{ Before, After background.Run }

// Change is what one transition does to a case. It is written only if the case's head and
// the state, attempt, token and cancel request of every run in it are still as in Before;
// else nothing is written.
type Change struct {
	Transition background.TransitionID
	Before     *Snapshot // nil: the change opens the case
	After      *Snapshot // must not be Before; writing the change sets its new head
	Others     []RunChange
	NewRun     *background.Run // a new run of the case that begins with this change
	Opening    Opening         // set if the change opens the case
	Reserve    bool            // what it adds to the committed sum is a reservation, and must fit into what the escrow has left
	Drafts     []receipts.Draft
	SideEffect SideEffect // nil unless the change writes more than its case
}

// Opening is the escrow of a case that does not exist yet.
type Opening struct {
	Reference, Currency string
	Held                int64
}

// isClaim reports whether the change claims its run. A change that leaves it running, such
// as a late answer of an earlier attempt, records a fact, which no guard of claims stops.
func (c *Change) isClaim() bool {
	return c.After.Run.State == background.Running && c.Before.Run.State != background.Running
}

// isOpening reports whether the change opens its case.
func (c *Change) isOpening() bool { return c.Before == nil || c.Before.Case.Head.Seq == 0 }

// committedDelta returns how much the change adds to the committed sum of the escrow;
// negative if it frees more.
func (c *Change) committedDelta() int64 {
	after := committed(&c.After.Case)
	if c.Before == nil {
		return after
	}
	return after - committed(&c.Before.Case)
}

func committed(c *Case) int64 { return c.State.Reserved + c.State.Released + c.State.Refunded }

// runCount returns the number of existing runs that the change is about; 0 for a case
// without runs.
func (c *Change) runCount() int {
	if c.After.Case.Kind == KindOperations {
		return 0
	}
	return 1 + len(c.Others)
}

// termsJoin finds the submitted receipt of a run by the primary key of receipts: for the
// first run of a case its receipt 1, for a later run the first receipt of its case that
// names it. It uses no column of another table, so that a change of such a column can't
// select another receipt.
const (
	termsColumns = `coalesce(own.body, CASE WHEN first.run_id = r.id THEN first.body END, '') AS own_receipt`

	noTermsColumns = `NULL::text AS own_receipt`

	termsJoin = `
  LEFT JOIN recourse.receipts first ON first.case_id = r.case_id AND first.seq = 1
  LEFT JOIN LATERAL (SELECT x.body FROM recourse.receipts x WHERE x.case_id = r.case_id AND x.seq > 1 AND x.run_id = r.id AND x.subtype = 'submitted'
    AND first.run_id IS DISTINCT FROM r.id ORDER BY x.seq LIMIT 1) own ON true
`
)

// terms returns what the submitted receipt of the run says; zero if there is none that can
// be read, nil if the query did not select it.
func (r *snapshotRow) terms() *receipts.Terms {
	if !r.OwnReceipt.Valid {
		return nil
	}
	t, err := receipts.ReadTerms([]byte(r.OwnReceipt.String))
	if err != nil {
		return new(receipts.Terms)
	}
	return &t
}
