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
type Check int

// The checks. All but the last three are of one tenant.
const (
	CheckOperations    Check = iota // settings and operation logs without each other, and versions without a receipt
	CheckPlans                      // counts and outcomes of bulk plans against their items and the receipts
	CheckControl                    // cancel requests, replays by rules and lookups against the receipts
	CheckOrphans                    // rows that refer to a missing row
	CheckHandlers                   // letters and their handlers' runs that do not refer to each other
	CheckLetters                    // the list of dead letters against the runs; Scope.Case restricts it to one case
	CheckAnnotations                // annotations that no receipt records
	CheckWebhooks                   // webhooks and their positions without each other, and positions that would skip events
	CheckOrder                      // receipts with no place in the order of events, with two, or in a wrong order, deaths first
	CheckTenantGaps                 // missing numbers of the tenant
	CheckGaps                       // missing numbers of all tenants
	CheckProjections                // projections beyond the end of the order of events
	CheckOperationKeys              // operations without a case
)

// Scope is what a check is about.
type Scope struct {
	Tenant string
	Case   receipts.CaseID // zero: all cases
}

// Discrepancy is one finding: the case and run it is about, as far as they are known, and what
// is wrong.
type Discrepancy struct {
	Case receipts.CaseID
	Run  receipts.RunID
	Seq  int64 // of the receipt, in findings of CheckOrder
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

// Each visits what a check finds. No finding is kept in memory. After ErrUnreadableReceipt some
// findings may be missing.
func (r *Reader) Each(ctx context.Context, check Check, of Scope, visit func(Discrepancy)) error {
	query, args, scan := check.statement(of)
	err := failed(eachRow(ctx, r.db, func(rows *sql.Rows) error {
		d, err := scan(rows)
		if err != nil {
			return err
		}
		visit(d)
		return nil
	}, query, args...))
	var refused *pq.Error
	if errors.As(err, &refused) && refused.Code.Class() == dataException {
		return fmt.Errorf("%w: %w", ErrUnreadableReceipt, err)
	}
	return err
}

// dataException is the class of SQLSTATEs of a value that can't be converted.
const dataException = "22"

// statement returns the query of a check, its parameters and how its rows are read.
func (check Check) statement(of Scope) (query string, args []any, scan func(*sql.Rows) (Discrepancy, error)) {
	switch check {
	case CheckOperations:
		return operationMismatchSQL, []any{of.Tenant, pq.StringArray(stored.OperationLogs)}, scanMismatch
	case CheckPlans:
		return planMismatchSQL, []any{of.Tenant}, scanMismatch
	case CheckControl:
		return controlMismatchSQL, []any{of.Tenant}, scanMismatch
	case CheckOrphans:
		return orphanSQL, []any{of.Tenant}, scanMismatch
	case CheckHandlers:
		return handlerMismatchSQL, []any{of.Tenant}, scanMismatch
	case CheckLetters:
		return indexMismatchSQL, []any{of.Tenant, stored.OptionalCase(of.Case)}, scanMismatch
	case CheckAnnotations:
		subtypes := make(pq.StringArray, len(stored.AnnotationReceipts))
		for i, s := range stored.AnnotationReceipts {
			subtypes[i] = string(s)
		}
		return annotationsWithoutReceiptSQL, []any{of.Tenant, subtypes}, scanMismatch
	case CheckWebhooks:
		return webhookPositionSQL, []any{of.Tenant}, scanMismatch
	case CheckOrder:
		return eventOrderErrorsSQL, []any{of.Tenant}, scanPlace
	case CheckTenantGaps:
		return tenantEventGapSQL, []any{of.Tenant}, scanGap
	case CheckGaps:
		return eventGapSQL, nil, scanGap
	case CheckProjections:
		return projectionAheadSQL, nil, scanMismatch
	case CheckOperationKeys:
		return orphanOperationSQL, nil, scanMismatch
	}
	panic(fmt.Sprintf("trail: no check has the number %d", check))
}

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
	return d, rows.Scan(&d.From, &d.To)
}

func scanPlace(rows *sql.Rows) (d Discrepancy, err error) {
	var caseID uuid.UUID
	var times int64
	var subtype string
	var early bool
	if err := rows.Scan(&caseID, &d.Seq, &subtype, &times, &early); err != nil {
		return d, err
	}
	d.Case = receipts.CaseID(caseID)
	switch {
	case subtype == "":
		d.Message = fmt.Sprintf("the order of events tells of receipt %d, and there is none", d.Seq)
	case early:
		d.Message = fmt.Sprintf("receipt %d (%s) comes before an earlier one of its case in the order of events", d.Seq, subtype)
	case times == 0:
		d.Message = fmt.Sprintf("receipt %d (%s) has no place in the order of events", d.Seq, subtype)
	default:
		d.Message = fmt.Sprintf("receipt %d (%s) has %d places in the order of events", d.Seq, subtype, times)
	}
	return d, nil
}
