package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/pgurl"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/trail"
	"github.com/recourse-dev/recourse/receipts"
)

// ReceiptReader reads receipts. Its methods return what is stored, also if it was tampered with, and an
// error only if it can't be read.
type ReceiptReader interface {
	// Tenants lists all tenants that have anything, in order.
	Tenants(ctx context.Context) ([]string, error)
	// Owners returns by case the tenants that have the case or its first receipt. Unknown cases
	// are left out.
	Owners(ctx context.Context, cases []receipts.CaseID) (map[receipts.CaseID][]string, error)
	// CountCases counts the cases of tenants that have runs, for progress.
	CountCases(ctx context.Context, tenants []string) (int, error)
	// Receipts streams a tenant's receipts by case and sequence.
	Receipts(ctx context.Context, tenant string) iter.Seq2[receipts.Receipt, error]
	// Trail reads receipts of a tenant's case in order, strictly after a sequence.
	Trail(ctx context.Context, tenant string, id receipts.CaseID, after int64, limit int) ([]receipts.Receipt, error)
}

// RowReader is a ReceiptReader that also has the rows which the receipts are about. Without it only
// what receipts alone can show is checked: see Report.NotChecked. What one method returns is of
// one moment, except where it streams.
type RowReader interface {
	ReceiptReader
	// Cases streams the cases of a tenant that have runs, by id.
	Cases(ctx context.Context, tenant string) iter.Seq2[StoredCase, error]
	// Case reads a case with its runs and its receipts. Runs are empty if it is not stored or
	// has none.
	Case(ctx context.Context, tenant string, id receipts.CaseID) (StoredCase, []receipts.Receipt, error)
	// Escrows lists a tenant's escrows by reference.
	Escrows(ctx context.Context, tenant string) ([]Escrow, error)
	// Escrow reads an escrow and what its cases add up to. found is false if the tenant has no such escrow.
	Escrow(ctx context.Context, tenant, reference string) (e Escrow, sum int64, found bool, err error)
	// EscrowCases lists the cases of an escrow, by id.
	EscrowCases(ctx context.Context, tenant, reference string) ([]receipts.CaseID, error)
	// Annotations reads the annotations of runs of a tenant. Runs without any are left out.
	Annotations(ctx context.Context, tenant string, runs []receipts.RunID) (map[receipts.RunID]Annotations, error)
	// CaseAnnotations reads the receipts of a case and the annotations of its runs.
	CaseAnnotations(ctx context.Context, tenant string, id receipts.CaseID) ([]receipts.Receipt, map[receipts.RunID]Annotations, error)
	// OperationLogs lists the cases of a tenant that have receipts but no run.
	OperationLogs(ctx context.Context, tenant string) ([]receipts.CaseID, error)
	// OperationLog reads one of these cases. found is false if there is none.
	OperationLog(ctx context.Context, tenant string, id receipts.CaseID) (o OperationLog, found bool, err error)
	// PlanItems visits all items of a bulk plan in order.
	PlanItems(ctx context.Context, plan uuid.UUID, visit func(PlanItem)) error
	// HasPlan reports whether a bulk plan is stored now.
	HasPlan(ctx context.Context, plan uuid.UUID) (bool, error)
	// Keys reads a tenant's access keys, without secrets, and the receipts of its key log.
	Keys(ctx context.Context, tenant string) ([]access.Key, []receipts.Receipt, error)
	// EventsFrom streams a tenant's receipts in the order of events, from a number on.
	EventsFrom(ctx context.Context, tenant string, from int64) iter.Seq2[NumberedReceipt, error]
	// Policies lists the policies that were set for a tenant, by family.
	Policies(ctx context.Context, tenant string) ([]Policy, error)
	// People reads the number in force and the receipts of the people log.
	People(ctx context.Context, tenant string) (People, []receipts.Receipt, error)
	// Each visits what a check of the database finds.
	Each(ctx context.Context, check Check, of Scope, visit func(Discrepancy)) error
}

// What a RowReader returns.
type (
	StoredCase   = trail.Case
	StoredRun    = trail.Run
	Escrow       = trail.Escrow
	Annotations  = trail.Annotations
	OperationLog = trail.OperationLog
	Breaker      = trail.Breaker
	Rule         = trail.Rule
	BulkPlan     = trail.BulkPlan
	PlanItem     = trail.PlanItem
	Webhook      = trail.Webhook
	Policy       = trail.Policy
	People       = trail.People
	Check        = trail.Check
	Scope        = trail.Scope
	Discrepancy  = trail.Discrepancy

	NumberedReceipt = trail.NumberedReceipt
)

var _ RowReader = (*trail.Reader)(nil)

// Database is a RowReader of a database. Besides, it answers CaseOf, OnePersonTenants and
// GuardsOff.
type Database struct {
	*trail.Reader
	db *sql.DB
}

// ErrSchema means that the schema of the database is not the one that this program reads. The
// error says in one line what to do.
var ErrSchema = stored.ErrSchema

// databaseConns is how many connections an audit may use at once: it streams receipts and rows
// side by side, and reads cases again meanwhile.
const databaseConns = 4

// Open opens a database for audits. The role of the URL needs USAGE on the schema recourse and
// SELECT on its tables and views, and nothing else. Triggers that are off are no error. Close the
// database after use.
func Open(ctx context.Context, databaseURL string) (_ *Database, err error) {
	dsn, err := pgurl.WithApplicationName(databaseURL, "recourse/audit")
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", pgurl.ErrUnreadable) // the driver's error may contain the URL
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(databaseConns)
	db.SetMaxIdleConns(databaseConns)
	if err := stored.CheckSchema(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Database{Reader: trail.New(db), db: db}, nil
}

// Close closes the connections.
func (d *Database) Close() error { return d.db.Close() }
