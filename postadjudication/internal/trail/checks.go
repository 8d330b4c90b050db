package trail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/receipts"
)

// Check is a comparison that the database makes by itself, in one statement at one moment.
type Check struct {
	statement string
	args      func(Scope) []any
	scan      func(*sql.Rows) (Discrepancy, error)
}

// The checks. The comment of its statement says what a check finds.
var (
	// Of one tenant.
	CheckOperations = Check{operationMismatchSQL, func(of Scope) []any { return []any{of.Tenant, pq.StringArray(stored.OperationLogs)} }, scanMismatch}
	CheckWebhooks   = Check{webhookPositionSQL, tenantArg, scanMismatch}
	CheckOrder      = Check{eventOrderErrorsSQL, tenantArg, scanPlace}
	CheckTenantGaps = Check{tenantEventGapSQL, tenantArg, scanGap}
	// Of one tenant, or of one of its cases if Scope.Case names it.
	CheckPlans       = Check{planMismatchSQL, caseArgs, scanMismatch}
	CheckControl     = Check{controlMismatchSQL, caseArgs, scanMismatch}
	CheckOrphans     = Check{orphanSQL, caseArgs, scanMismatch}
	CheckHandlers    = Check{handlerMismatchSQL, caseArgs, scanMismatch}
	CheckLetters     = Check{indexMismatchSQL, caseArgs, scanMismatch}
	CheckAnnotations = Check{annotationsWithoutReceiptSQL, func(of Scope) []any { return append(caseArgs(of), pq.Array(stored.AnnotationReceipts)) }, scanMismatch}

	// Of all tenants.
	CheckGaps          = Check{eventGapSQL, noArgs, scanGap}
	CheckProjections   = Check{projectionAheadSQL, noArgs, scanMismatch}
	CheckOperationKeys = Check{orphanOperationSQL, noArgs, scanMismatch}
)

func tenantArg(of Scope) []any { return []any{of.Tenant} }

func caseArgs(of Scope) []any { return []any{of.Tenant, stored.OptionalCase(of.Case)} }

func noArgs(Scope) []any { return nil }

// Scope is what a check is about.
type Scope struct {
	Tenant string
	Case   receipts.CaseID // zero: all cases; read by the checks that can be of one case
}

// Discrepancy is one finding: the case and run it is about, as far as they are known, and what
// is wrong.
type Discrepancy struct {
	Case    receipts.CaseID
	Run     receipts.RunID
	Receipt string // its id, in findings of CheckOrder
	// From and To are the missing numbers, in findings of gaps. To below From means that the
	// numbers between them are given twice.
	From, To int64
	Message  string // empty for gaps
	// Stored and Expected are what is stored and what should be, if two values were
	// compared.
	Stored, Expected string
}

// ErrUnreadableReceipt is returned for a check that failed because the body of a receipt is no
// JSON.
var ErrUnreadableReceipt = errors.New("trail: a receipt can't be read")

// Each calls visit with each finding of a check, and keeps none in memory. After
// ErrUnreadableReceipt some findings may be missing.
func (r *Reader) Each(ctx context.Context, check Check, of Scope, visit func(Discrepancy)) error {
	err := failed(eachRow(ctx, r.db, func(rows *sql.Rows) error {
		d, err := check.scan(rows)
		if err != nil {
			return err
		}
		visit(d)
		return nil
	}, check.statement, check.args(of)...))
	var refused *pq.Error
	if errors.As(err, &refused) && refused.Code.Class() == dataException {
		return fmt.Errorf("%w: %w", ErrUnreadableReceipt, err)
	}
	return err
}

// dataException is the class of SQLSTATEs of a value that can't be converted.
const dataException = "22"

// scanMismatch reads case, run and message, of which the first two may be NULL, then the stored
// and the expected value if the query has these columns.
func scanMismatch(rows *sql.Rows) (d Discrepancy, err error) {
	var caseID, run uuid.NullUUID
	var storedValue, expected sql.NullString
	dest := []any{&caseID, &run, &d.Message, &storedValue, &expected}
	columns, err := rows.Columns()
	if err != nil {
		return d, err
	}
	err = rows.Scan(dest[:len(columns)]...)
	d.Case, d.Run, d.Stored, d.Expected = receipts.CaseID(caseID.UUID), receipts.RunID(run.UUID), storedValue.String, expected.String
	return d, err
}

func scanGap(rows *sql.Rows) (d Discrepancy, err error) {
	err = rows.Scan(&d.From, &d.To)
	return d, err
}

func scanPlace(rows *sql.Rows) (d Discrepancy, err error) {
	var caseID uuid.UUID
	var seq, times int64
	var subtype string
	var early bool
	if err := rows.Scan(&caseID, &seq, &subtype, &times, &early); err != nil {
		return d, err
	}
	d.Case = receipts.CaseID(caseID)
	d.Receipt = receipts.Receipt{Case: d.Case, Seq: seq}.ID()
	switch {
	case subtype == "":
		d.Message = fmt.Sprintf("the order of events has receipt %d, which is not there", seq)
	case early:
		d.Message = fmt.Sprintf("receipt %d (%s) comes before an earlier one of its case in the order of events", seq, subtype)
	case times == 0:
		d.Message = fmt.Sprintf("receipt %d (%s) has no place in the order of events", seq, subtype)
	default:
		d.Message = fmt.Sprintf("receipt %d (%s) has %d places in the order of events", seq, subtype, times)
	}
	return d, nil
}
