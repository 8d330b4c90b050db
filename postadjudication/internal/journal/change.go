package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// Change is what one transition does to a case. A change of an existing case is written only if the head of
// the case, and the state, attempt, token and cancel request of the run and of each of Others, are still as
// they were before; else nothing is written.
type Change struct {
	Transition    background.TransitionID
	Before        *Snapshot // nil: the change opens the case
	After         *Snapshot // must not be Before; writing the change sets its new head
	Others        []RunChange
	NewRun        *background.Run // a new run of the case that begins with this change
	OpeningEscrow OpeningEscrow   // set if the change opens the case
	Reserve       bool            // of a change of an existing case: what it adds to the committed sum must fit into what the escrow has left, as that of an opening always must
	Drafts        []receipts.Draft
	SideEffect    SideEffect // nil unless the change writes more than its case

	// Fingerprint is what a unique job is unique by after NewRun, a fork with other content; nil: the same as before.
	Fingerprint *[32]byte
}

// RunChange is the change of another run than that of After.
type RunChange struct{ Before, After background.Run }

// OpeningEscrow is the escrow of a case that does not exist yet.
type OpeningEscrow struct {
	Reference, Currency string
	Held                int64
}

// SideEffect is what a change writes outside its own case, in the same transaction: both
// are committed, or neither. Changes without a side effect share statements with each other, and deaths with a
// LetterHandler share transactions. Every other side effect has a transaction of its own.
type SideEffect interface {
	// write writes to the transaction in which the change itself is written already.
	write(ctx context.Context, tx *sql.Tx) error
	// failpointName returns the failpoint of the transaction.
	failpointName() string
}

// Decision returns the change that a transition makes to a case, or an error if it makes
// none. It may be called several times, each time with a newer snapshot, and only the last change may be
// written. So a call must have no effect that outlives the next call.
//
// Other goroutines read the snapshot too. A Decision must not change it, nor keep it except as the Before of
// its change.
type Decision func(*Snapshot) (Change, error)

// isClaim reports whether the change claims its run. A change that leaves it running, such
// as a late answer of an earlier attempt, records a fact, which no guard of claims stops.
func (c *Change) isClaim() bool {
	return c.After.Run.State == background.Running && c.Before.Run.State != background.Running
}

// isOpening reports whether the change opens its case. chain replaces a nil Before by an empty one.
func (c *Change) isOpening() bool { return c.Before == nil || c.Before.Case.Head.Seq == 0 }

// batchable reports whether a change shares its commit with others: one without a side effect does,
// and so does one that begins a letter handler. Any other side effect, and the fork of a remote run,
// which may be unique, has a transaction of its own.
func (c *Change) batchable() bool {
	return (c.SideEffect == nil || c.beginsLetterHandler()) && !c.forksRemoteRun()
}

// beginsLetterHandler reports whether a run dies of the change and its handler begins.
func (c *Change) beginsLetterHandler() bool {
	_, begins := c.SideEffect.(LetterHandler)
	return begins
}

// forksRemoteRun reports whether the change forks a remote run: its case may be that of a unique job.
func (c *Change) forksRemoteRun() bool { return c.NewRun != nil && c.NewRun.Remote }

// runCount returns the number of existing runs that the change is about; 0 for a case
// without runs.
func (c *Change) runCount() int {
	if c.After.Case.Kind == KindOperations {
		return 0
	}
	return 1 + len(c.Others)
}

// committedDelta returns how much the change adds to the committed sum of the escrow;
// negative if it frees more.
func (c *Change) committedDelta() int64 {
	after := committed(&c.After.Case)
	if c.Before == nil {
		return after
	}
	return after - committed(&c.Before.Case)
}

func committed(c *Case) int64 { return c.State.Committed() }

// chainedChange is a change with its receipts chained to the head it was decided on.
type chainedChange struct {
	*Change
	receipts []receipts.Receipt
	head     receipts.Head
}

// errSharedAfter refuses a change whose After is its Before, which other goroutines read.
var errSharedAfter = errors.New("journal: After of a change is its Before")

// chain chains the receipts of a change behind the head that it was decided on. It sets Before if that
// is nil, the head of After and, if the change opens a case with runs, the terms of its run.
func chain(change *Change) (*chainedChange, error) {
	switch change.Before {
	case nil:
		change.Before = &Snapshot{}
	case change.After:
		return nil, errSharedAfter
	}
	from := change.Before.Case.Head
	if change.isOpening() {
		from = receipts.Genesis(change.After.Case.ID)
	}
	rs, head, err := receipts.Chain(change.After.Case.ID, change.After.Case.Tenant, from, change.Drafts...)
	if err != nil {
		return nil, fmt.Errorf("journal: chain receipts: %w", err)
	}
	change.After.Case.Head = head
	if change.isOpening() && change.After.Case.Kind != KindOperations {
		terms := change.Drafts[0].Terms(change.After.Case.ID, change.After.Case.Tenant)
		change.After.Run.Terms = &terms
	}
	return &chainedChange{Change: change, receipts: rs, head: head}, nil
}

// chainForCaller is chain for a change that a caller asks for.
func chainForCaller(ctx context.Context, change *Change) (*chainedChange, error) {
	markSelfDeclared(ctx, change.Drafts)
	return chain(change)
}

func chainAll(ctx context.Context, changes []Change) ([]*chainedChange, error) {
	out := make([]*chainedChange, len(changes))
	for i := range changes {
		var err error
		if out[i], err = chainForCaller(ctx, &changes[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// hasOneReceipt reports whether the change has one receipt, of its run.
func (ch *chainedChange) hasOneReceipt() bool {
	return len(ch.receipts) == 1 && ch.receipts[0].Run == ch.After.Run.ID && ch.After.Case.Kind != KindOperations
}

type selfDeclaredKey struct{}

// WithSelfDeclared returns a context in which every receipt of what its caller asks for is marked
// self-declared: no key proves the actor's name. The receipts of a letter handler are not marked, since
// nobody asks for it.
func WithSelfDeclared(ctx context.Context) context.Context {
	return context.WithValue(ctx, selfDeclaredKey{}, true)
}

func markSelfDeclared(ctx context.Context, drafts []receipts.Draft) {
	if ctx.Value(selfDeclaredKey{}) == nil {
		return
	}
	for i := range drafts {
		drafts[i].Payload.SelfDeclared = true
	}
}

// result is the result of writing one change. Statements return it by its name in resultNames.
type result int

const (
	conflict       result = iota // a guard did not hold, or the row was locked by another transaction; the zero value, of rows that a statement leaves out
	applied                      // committed, or part of the caller's transaction
	exceedsHeld                  // it exceeds what the escrow has left; decided on the locked row
	deferred                     // of an opening: it does not fit into the escrow after others of its batch
	escrowMismatch               // of an opening: the escrow holds another sum or currency
	caseExists                   // of an opening: the case exists
)

var resultNames = [...]string{
	conflict: "conflict", applied: "applied", exceedsHeld: "exceeds_held", deferred: "deferred", escrowMismatch: "escrow_mismatch", caseExists: "case_exists",
}

// Scan implements sql.Scanner.
func (r *result) Scan(column any) error {
	name := fmt.Sprintf("%s", column)
	i := slices.Index(resultNames[:], name)
	if i < 0 {
		return fmt.Errorf("unexpected result %q", name)
	}
	*r = result(i)
	return nil
}
