package postgres

import (
	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Kind tells a case of a settlement from one of a plain family.
type Kind string

// The kinds of case.
const (
	KindSettlement Kind = "settlement"
	KindPlain      Kind = "plain"
	KindOperations Kind = "operations" // has receipts but no run
)

// Case is a row of cases as it was last seen. Head is its version: every move
// names the head that it was decided on.
type Case struct {
	ID         receipts.CaseID
	Tenant     string
	Kind       Kind
	Subject    string // transaction receipt id; "<family>:<retry key>" for plain families
	Escrow     int64  // row id; 0 for plain families
	Reference  string // the escrow's
	Currency   string
	Held       int64
	Submission string // submission receipt id of the present generation
	Content    [32]byte
	State      settlement.State
	ActiveRun  background.RunID // the run that holds the case; when none does, the last one
	Epoch      int
	Head       receipts.Head
}

// Snapshot is a run and its case at one moment.
type Snapshot struct {
	Case Case
	Run  background.Run
}

// RunChange is a run that changes beside the one that a Change is about.
type RunChange struct{ Before, After background.Run }

// Change is what one move makes of a case. The statement writes it only if the
// case's head and the state, attempt, token and cancel request of every run in it
// are still as in Before; else it writes nothing.
type Change struct {
	Transition background.TransitionID
	Before     *Snapshot // nil: the case is opened by this change
	After      *Snapshot // its own; the new head is put into it
	Others     []RunChange
	NewRun     *background.Run // another run of the case that begins with this change
	Opening    Opening         // set when the case is opened
	Reserve    bool            // what is committed more is a reservation and must fit into what is held and free
	Drafts     []receipts.Draft
	SideEffect SideEffect // nil but for changes that write more than their case
}

// Opening names the escrow of a case that does not exist yet.
type Opening struct {
	Reference, Currency string
	Held                int64
}

// isClaim reports whether the change claims its run. One that leaves it running, such
// as a late answer of an attempt before, is a fact, which nothing bars.
func (c *Change) isClaim() bool {
	return c.After.Run.State == background.Running && c.Before.Run.State != background.Running
}

// isOpening reports whether the change opens its case.
func (c *Change) isOpening() bool { return c.Before == nil || c.Before.Case.Head.Seq == 0 }

// committedDelta is by how much the change raises what the case has committed of its escrow;
// negative when it frees more.
func (c *Change) committedDelta() int64 {
	after := committed(&c.After.Case)
	if c.Before == nil {
		return after
	}
	return after - committed(&c.Before.Case)
}

func committed(c *Case) int64 { return c.State.Reserved + c.State.Released + c.State.Refunded }

// runCount is how many existing runs the change is about: one and those beside it, but
// none of a case that has no runs.
func (c *Change) runCount() int {
	if c.After.Case.Kind == KindOperations {
		return 0
	}
	return 1 + len(c.Others)
}

// termsJoin finds the submitted receipt of a run by the primary key of receipts: that of
// the first run of a case is its receipt 1; that of a later run is the first of its
// case that names it. No column of another table leads there, so that none of them can
// lead elsewhere.
const (
	termsColumns = `coalesce(own.body, CASE WHEN first.run_id = r.id THEN first.body END, '') AS own_said, CASE WHEN own.body IS NOT NULL THEN first.body END AS first_said`

	noTermsColumns = `NULL::text AS own_said, NULL::text AS first_said`

	termsJoin = `
  LEFT JOIN recourse.receipts first ON first.case_id = r.case_id AND first.seq = 1
  LEFT JOIN LATERAL (SELECT x.body FROM recourse.receipts x WHERE x.case_id = r.case_id AND x.seq > 1 AND x.run_id = r.id AND x.subtype = 'submitted'
    AND first.run_id IS DISTINCT FROM r.id ORDER BY x.seq LIMIT 1) own ON true
`
)

// terms are what the submitted receipt of the run says; zero when there is none that can
// be read, nil when it was not asked for.
func (r *snapshotRow) terms() *receipts.Terms {
	if !r.OwnReceipt.Valid {
		return nil
	}
	t, err := receipts.ReadTerms([]byte(r.OwnReceipt.String))
	if err != nil {
		return new(receipts.Terms)
	}
	if r.FirstReceipt.Valid {
		if first, err := receipts.ReadTerms([]byte(r.FirstReceipt.String)); err == nil {
			t = t.Since(first)
		}
	}
	return &t
}
