package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/internal/strictjson"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// maxReturnLine is the maximum number of bytes in a line of a file of returns.
const maxReturnLine = 64 << 10

// oneReturn is a returned payment that is given by flags.
type oneReturn struct {
	amount                                    shell.Sum
	transaction, currency, reference, at, run string

	bad []intake.Problem // of the lines of a file
}

func returnedCommand(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var one oneReturn
	var reason string
	cmd := &cobra.Command{
		Use: "returned [FILE|-]", Short: "Plan to record payments that came back", Args: cobra.MaximumNArgs(1),
		Long: `Plan to record payments that a bank or an escrow service returned after they had settled.
Another person runs the plan. Name one payment by flags, or a file of up to 1000, one JSON
object a line:

  {"transaction_receipt_id":"txr_1","reference":"R-2026-11-20-7",
   "amount":{"minor":12500,"currency":"USD"},"returned_at":"2026-11-20T09:30:00Z"}

The reference is the bank's own. It identifies the return: it is safe to hand over the same
file again, and a payment that is returned in parts has one for each part. returned_at is
optional. run_id names the run that paid, where several runs of the transaction have paid.
Then the escrow has the sum again, and the case is dispute-ready: a higher generation may
be decided. A bad line is reported, and the others are planned. The exit code is 1 if a line
was bad or a payment can't be recorded.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := shell.NeedReason(cmd, reason); err != nil {
				return err
			}
			returns, err := one.orFile(sh, cmd, args)
			if err != nil {
				return err
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				planned, err := be.Cases.PlanReturns(ctx, bulk.ReturnsRequest{Returns: returns, Reason: reason})
				if err != nil {
					return err
				}
				return answerReturns(sh, &o, planned, one.bad)
			})
		},
	}
	f := cmd.Flags()
	o.BindActor(f)
	f.StringVar(&one.transaction, "transaction", "", "transaction receipt id of the payment")
	one.amount.Bind(f, "amount", "how much came back")
	f.StringVar(&one.currency, "currency", "", "currency of --amount-minor, such as EUR")
	f.StringVar(&one.reference, "reference", "", "the bank's own reference of the return")
	f.StringVar(&one.at, "returned-at", "", "when it came back, RFC 3339 or a date")
	f.StringVar(&one.run, "run", "", "the run that paid, where several runs of the transaction have paid")
	f.StringVar(&reason, "reason", "", "reason to record (required)")
	return cmd
}

// orFile returns the payment that the flags name, or those of the file.
func (r *oneReturn) orFile(sh *shell.Shell, cmd *cobra.Command, args []string) ([]bulk.ReturnedPayment, error) {
	switch given := r.amount.Given() || r.transaction+r.currency+r.reference+r.at+r.run != ""; {
	case given == (len(args) == 1):
		return nil, shell.Usage(cmd, errors.New("name either one payment by --transaction, --amount and --reference, or a file"))
	case given:
		one, err := r.payment(cmd)
		return []bulk.ReturnedPayment{one}, err
	}
	from, err := sh.Open(args[0])
	if err != nil {
		return nil, err
	}
	defer from.Close() // only read from
	return r.readReturns(from)
}

func (r *oneReturn) payment(cmd *cobra.Command) (bulk.ReturnedPayment, error) {
	out := bulk.ReturnedPayment{Transaction: r.transaction, Reference: r.reference}
	var errs []error
	sum, err := r.amount.Read()
	switch {
	case err != nil:
		errs = append(errs, err)
	case !r.amount.Given():
		errs = append(errs, errors.New("--amount is missing: how much came back, such as 125.00EUR"))
	case sum.Currency == "" && r.currency == "":
		errs = append(errs, errors.New("--amount-minor needs --currency, such as EUR"))
	case sum.Currency != "" && r.currency != "":
		errs = append(errs, errors.New("--currency is for --amount-minor: --amount has its own"))
	}
	out.Amount = settlement.Money{Minor: sum.Minor, Currency: sum.Currency + r.currency}
	if err := shell.ParseTime("returned-at", r.at, &out.ReturnedAt); err != nil {
		errs = append(errs, err)
	}
	if r.run != "" {
		if err := out.Run.UnmarshalText([]byte(r.run)); err != nil {
			errs = append(errs, fmt.Errorf("--run: %w", err))
		}
	}
	for flag, value := range map[string]string{"--transaction": r.transaction, "--reference": r.reference} {
		if value == "" {
			errs = append(errs, errors.New(flag+" is missing"))
		}
	}
	if len(errs) > 0 {
		return out, shell.Usage(cmd, errors.Join(errs...))
	}
	return out, nil
}

// readReturns reads returned payments, one JSON object a line, and keeps what is wrong with bad lines. If all are bad,
// it returns an error.
func (r *oneReturn) readReturns(from io.Reader) (out []bulk.ReturnedPayment, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxReturnLine)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var one bulk.ReturnedPayment
		if err := readReturn(line, &one); err != nil {
			r.bad = append(r.bad, intake.Problem{Line: n, Problem: redact.Text(err.Error())})
			continue
		}
		if out = append(out, one); len(out) > bulk.MaxReturns {
			return nil, fmt.Errorf("the file has more than %d lines: hand it over in parts", bulk.MaxReturns)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(out) == 0 && len(r.bad) > 0 {
		return nil, errors.New("no line names a payment: " + r.bad[0].Error())
	}
	if len(out) == 0 {
		return nil, errors.New("the file names no payment")
	}
	return out, nil
}

// readReturn reads a line. A member that is unknown is refused: one that is misspelled, such as returned_at, would be left out of the receipt.
func readReturn(line []byte, r *bulk.ReturnedPayment) error {
	if err := strictjson.CheckFor(line, r); err != nil {
		return err
	}
	known := json.NewDecoder(bytes.NewReader(line))
	known.DisallowUnknownFields()
	return known.Decode(r)
}

// returnsAnswer is the JSON result of returned.
type returnsAnswer struct {
	bulk.PlannedReturns
	BadLines []intake.Problem `json:"bad_lines,omitempty"`
}

// answerReturns writes what became of returned payments: the plan, those that it has not, and the bad lines.
func answerReturns(sh *shell.Shell, o *backend.Flags, planned bulk.PlannedReturns, bad []intake.Problem) error {
	var refused error
	if n := len(planned.Refused) + len(bad); n > 0 {
		refused = fmt.Errorf("%s can't be recorded", shell.Plural(n, "returned payment"))
	}
	if sh.JSON {
		return cmp.Or(sh.Answer(returnsAnswer{planned, bad}), refused)
	}
	s := sh.Screen()
	for _, line := range bad {
		s.Text("%s", line.Error())
	}
	for _, r := range planned.Refused {
		s.Text("%s: %s", r.Reference, r.Why)
	}
	if n := len(planned.Known); n > 0 {
		s.Text("%s recorded before.", shell.Plural(n, "returned payment"))
	}
	if err := s.Err(); err != nil {
		return err
	}
	if planned.Plan == nil {
		return refused
	}
	return cmp.Or(backend.AnswerPlan(sh, o, *planned.Plan), refused)
}

// returnedText returns what a receipt says of a payment that came back.
func returnedText(p receipts.Payload, returned string) string {
	return fmt.Sprintf("%s of the %s came back: %s (%s)", returned, p.Outcome, p.Reason, p.Reference)
}
