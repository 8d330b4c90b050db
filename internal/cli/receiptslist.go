package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// receiptFlags select receipts.
type receiptFlags struct {
	backend.Flags
	transaction, caseID, run string
	after                    int64
	limit                    int
	selection                receiptSelection
	currency                 string // currency of the case, set by read
}

// maxReceipts is the largest --limit.
const maxReceipts = 10_000

func receiptsList(sh *shell.Shell) *cobra.Command {
	var l receiptFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List receipts in order, of a case or by actor, time and subtype", Args: shell.Exactly(),
		Long: `List the receipts of a case in order. Name the case by its transaction, its id, or one
of its runs; --run lists only the receipts of that run. To continue a list that reached
--limit, pass its last sequence number to --after.

Without a case, --actor, --since, --until and --subtype find receipts of all cases and operation
logs of the tenant: what one person did, and when. Its end says what to pass to --after. --file
reads a file that receipts export wrote, without a database.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.checkSelection(cmd); err != nil {
				return err
			}
			if l.selection.file != "" {
				return l.listFile(cmd.Context(), sh)
			}
			return backend.With(sh, cmd, &l.Flags, func(ctx context.Context, be backend.Backend) error {
				if !l.namesCase() {
					return l.listFound(ctx, sh, be.Cases)
				}
				found, more, err := l.read(ctx, be.Cases)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(receiptsAnswer{Receipts: asJSON(found), More: more})
				}
				return showReceipts(sh.Screen(), receiptColumns(false), l.currency, found, more)
			})
		},
	}
	f := cmd.Flags()
	l.Bind(f)
	l.selection.bind(f)
	f.StringVar(&l.transaction, "transaction", "", "transaction receipt id")
	f.StringVar(&l.caseID, "case", "", "case id")
	f.StringVar(&l.run, "run", "", "run id")
	f.Int64Var(&l.after, "after", 0, "list only entries after this sequence number")
	f.IntVar(&l.limit, "limit", 100, fmt.Sprintf("maximum number to list, up to %d", maxReceipts))
	return cmd
}

func (l *receiptFlags) checkSelection(cmd *cobra.Command) error {
	named := 0
	for _, s := range []string{l.transaction, l.caseID, l.run} {
		if s != "" {
			named++
		}
	}
	if !cmd.Flags().Changed("actor") {
		l.selection.filter.Actor = "" // $RECOURSE_ACTOR is who acts, and selects nothing
	}
	if err := l.selection.parse(); err != nil {
		return shell.Usage(cmd, err)
	}
	switch {
	case named > 1, named == 0 && !l.selection.given():
		return shell.Usage(cmd, errors.New("name the case by one of --transaction, --case and --run, or select receipts by --actor, --since, --until and --subtype"))
	case l.selection.file != "" && (l.transaction != "" || l.after != 0 || cmd.Flags().Changed("server")):
		return shell.Usage(cmd, errors.New("--file excludes --transaction, --after and --server: name the case by --case or --run"))
	case l.limit < 1 || l.limit > maxReceipts:
		return shell.Usage(cmd, fmt.Errorf("--limit is not between 1 and %d", maxReceipts))
	case l.after < 0:
		return shell.Usage(cmd, errors.New("--after is negative"))
	}
	return nil
}

func (l *receiptFlags) namesCase() bool { return l.transaction+l.caseID+l.run != "" }

// read returns the selected receipts, and whether there are more.
func (l *receiptFlags) read(ctx context.Context, cases backend.Cases) (found []receipts.Receipt, more bool, err error) {
	caseID, run, err := l.resolve(ctx, cases)
	if err == nil {
		l.currency, err = currencyOf(ctx, cases, caseID)
	}
	if err != nil {
		return nil, false, l.NotFound(err, shell.CaseName(l.caseID, l.run, l.transaction))
	}
	for after, rest := l.after, true; rest; {
		var page []receipts.Receipt
		if page, rest, err = cases.Receipts(ctx, caseID, after, receiptPageSize); err != nil {
			return nil, false, err
		}
		for _, r := range page {
			if !run.IsZero() && r.Run != run || !l.selection.filter.Matches(r) {
				continue
			}
			if len(found) == l.limit {
				return found, true, nil
			}
			found = append(found, r)
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Seq
	}
	if len(found) == 0 && l.after == 0 && !l.selection.given() {
		return nil, false, l.NotFound(refusal.ErrNotFound, shell.CaseName(l.caseID, l.run, l.transaction))
	}
	return found, false, nil
}

// resolve returns the case that the flags name; run is zero without --run.
func (l *receiptFlags) resolve(ctx context.Context, cases backend.Cases) (caseID receipts.CaseID, run receipts.RunID, err error) {
	switch {
	case l.caseID != "":
		if caseID, err = receipts.ParseCaseID(l.caseID); err != nil {
			err = shell.WithCode(shell.ExitUsage, fmt.Errorf("--case %s is not a case id", l.caseID))
		}
		return caseID, run, err
	case l.run != "":
		if run, err = receipts.ParseRunID(l.run); err != nil {
			return caseID, run, shell.WithCode(shell.ExitUsage, fmt.Errorf("--run %s is not a run id", l.run))
		}
		status, err := cases.Run(ctx, run)
		return status.Case, run, err
	}
	status, err := cases.Find(ctx, l.transaction)
	return status.Case, run, err
}

// currencyOf returns the currency in the first receipt of a case; empty if there is none.
func currencyOf(ctx context.Context, cases backend.Cases, caseID receipts.CaseID) (string, error) {
	first, _, err := cases.Receipts(ctx, caseID, 0, 1)
	if err != nil || len(first) == 0 {
		return "", err
	}
	p, err := first[0].Payload()
	if err != nil {
		return "", fmt.Errorf("receipt %s: %w", first[0].ID(), err)
	}
	return p.Currency, nil
}

// receiptsAnswer is the answer of receipts list.
type receiptsAnswer struct {
	Receipts []receiptJSON `json:"receipts"`
	More     bool          `json:"more"`
	Next     int64         `json:"next,omitempty"` // without a case: what continues the list
}

// receiptJSON is a receipt; Body has the exact bytes that were hashed.
type receiptJSON struct {
	ID   string          `json:"id"`
	Seq  int64           `json:"seq"`
	Body json.RawMessage `json:"body"`
	Link string          `json:"link"` // hexadecimal
}

func asJSON(rs []receipts.Receipt) []receiptJSON {
	out := make([]receiptJSON, len(rs))
	for i, r := range rs {
		out[i] = receiptJSON{r.ID(), r.Seq, r.Body, fmt.Sprintf("%x", r.Link)}
	}
	return out
}

// receiptColumns returns the columns of a table of receipts, of one case or with the case of each.
func receiptColumns(ofCases bool) []screen.Column {
	columns := []screen.Column{
		{Name: "Seq", Right: true}, {Name: "Time (UTC)"}, {Name: "Source", Optional: true}, {Name: "Receipt"}, {Name: "#", Right: true},
		{Name: "Known"}, {Name: "Actor", Optional: true}, {Name: "What", Wraps: true},
	}
	if ofCases {
		columns = append(columns, screen.Column{Name: "Case"})
	}
	return columns
}

// showReceipts writes receipts in the currency of their case, which may be empty.
func showReceipts(s *screen.Screen, columns []screen.Column, currency string, rs []receipts.Receipt, more bool) error {
	rows := make([][]string, len(rs))
	for i, r := range rs {
		p, err := r.Payload()
		if err != nil {
			return fmt.Errorf("receipt %s: %w", r.ID(), err)
		}
		attempt := ""
		if n := max(p.Attempt, p.Attempts); n > 0 {
			attempt = strconv.Itoa(n)
		}
		source := strings.TrimPrefix(string(r.Source), "post_adjudication_")
		rows[i] = []string{strconv.FormatInt(r.Seq, 10), shell.Timestamp(r.At), source, string(r.Subtype), attempt, p.OutcomeClass, r.Actor, receiptDetails(r, p, currency) + provenance(p)}
		if len(columns) > len(rows[i]) {
			rows[i] = append(rows[i], r.Case.String())
		}
	}
	s.Table(columns, rows)
	if more {
		s.Text("There are more: --after %d", rs[len(rs)-1].Seq)
	}
	return s.Err()
}

// refusalText returns what was requested and which gate refused it, for a submission with its
// outcome, amount, generation and adjudication.
func refusalText(p receipts.Payload) string {
	text := fmt.Sprintf("%s refused by %s", p.AskedFor, p.RefusedBy)
	if p.Currency == "" {
		return text
	}
	return fmt.Sprintf("%s: %s %s, generation %d, %s", text, p.Outcome, settlement.Money{Minor: p.Amount, Currency: p.Currency}, p.Generation, p.AdjudicationID)
}

// provenance returns the planner of a plan's action, its break-glass incident, the number of people
// if it is set, the URL of a lookup, whether the actor is self-declared, and whether it contradicts the record.
func provenance(p receipts.Payload) (text string) {
	if p.PlannedBy != "" {
		text += "; planned by " + p.PlannedBy
	}
	if p.BreakGlass != "" {
		text += "; break-glass " + p.BreakGlass
	}
	if p.People > 0 {
		text += "; people: " + strconv.Itoa(p.People)
	}
	if p.LookupURL != "" {
		text += "; looked up at " + p.LookupURL
	}
	if p.SelfDeclared {
		text += "; self-declared"
	}
	if p.ContradictsRecord {
		text += "; contradicts the record, as confirmed"
	}
	return text
}

// withReference returns the reason, with the reference of the finding in parentheses.
func withReference(p receipts.Payload) string {
	if p.FindingReference == "" {
		return p.Reason
	}
	return strings.TrimSpace(p.Reason + " (" + p.FindingReference + ")")
}

// receiptDetails returns the particulars of a receipt for people.
func receiptDetails(r receipts.Receipt, p receipts.Payload, currency string) string {
	money := func(minor int64) string { return settlement.Money{Minor: minor, Currency: currency}.String() }
	switch {
	case r.Subtype == receipts.Submitted && !p.ParentRun.IsZero():
		return "fork of " + p.ParentRun.String()
	case r.Subtype == receipts.Reconciled:
		found := "found " + p.Finding
		if p.Moved > 0 {
			found += ", moved " + money(p.Moved)
		}
		return strings.TrimSuffix(found+": "+withReference(p), ": ")
	case r.Subtype == receipts.Submitted:
		accepted := fmt.Sprintf("%s %s", p.Outcome, settlement.Money{Minor: p.Amount, Currency: p.Currency})
		if p.Freed > 0 {
			accepted += ", freed " + money(p.Freed)
		}
		return accepted
	case p.RefusedBy != "":
		return refusalText(p)
	case r.Subtype == receipts.ReservationFreed:
		return fmt.Sprintf("freed %s: %s", money(p.Freed), withReference(p))
	case r.Subtype == receipts.Returned:
		return returnedText(p, money(p.Returned))
	case r.Subtype == receipts.AttemptSucceeded && p.Moved > 0 && p.Settlement != nil:
		return paymentText(p, money(p.Moved))
	case r.Subtype == receipts.Superseded:
		return fmt.Sprintf("by run %s, generation %d", p.NewRun, p.Generation)
	case r.Subtype == receipts.ConservationBreach:
		return fmt.Sprintf("%s paid beyond what was adjudicated", money(p.Excess))
	case r.Subtype == receipts.Contradicted:
		return contradictionText(p, money)
	case r.Subtype == receipts.RetryScheduled && p.ReasonCode == receipts.ReasonAccepted:
		return fmt.Sprintf("%s: accepted and not ended, asked in %s", p.Error.Type, p.NextRetryAt.Sub(r.At).Round(time.Microsecond))
	case r.Subtype == receipts.RetryScheduled:
		return fmt.Sprintf("%s, next in %s", p.Error.Type, p.NextRetryAt.Sub(r.At).Round(time.Microsecond))
	case p.Error.Type != "":
		return strings.TrimPrefix(p.ReasonCode+": "+p.Error.Type, ": ")
	case p.Moved > 0 && p.Settlement != nil:
		return paymentText(p, money(p.Moved))
	}
	return p.Reason
}

// paymentText says what was moved, under which reference, and where a lookup and not the call said so.
func paymentText(p receipts.Payload, moved string) string {
	text := "moved " + moved
	if p.Reference != "" {
		text += " (" + p.Reference + ")"
	}
	if p.Lookup != "" {
		text = "lookup after " + cmp.Or(p.Error.Type, "the call") + ": " + text
	}
	return text + ", case " + string(p.Settlement.ProgressionStatus)
}

// contradictionText says what an answer stated, and what is on record.
func contradictionText(p receipts.Payload, money func(int64) string) string {
	said := "that nothing was executed"
	if p.Moved > 0 {
		said = money(p.Moved) + " moved, reference " + strconv.Quote(p.Reference)
	}
	return fmt.Sprintf("it states %s; on record are %s, reference %q", said, money(p.Recorded), p.RecordedReference)
}
