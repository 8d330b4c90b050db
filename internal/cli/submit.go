package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

const (
	// submitBatchSize is how many lines are submitted in one call and held in memory.
	submitBatchSize = 500
	// maxListed is the maximum length of each list of the answer; Omitted counts the rest.
	maxListed = 200
)

// submitAnswer is the result of a submitted file.
type submitAnswer struct {
	Lines    int                            `json:"lines"`
	Replies  map[postadjudication.Reply]int `json:"replies"`
	BadLines int                            `json:"bad_lines"`
	Refused  []intake.Problem               `json:"refused"`  // problems of bad lines
	Declined []declinedLine                 `json:"declined"` // good lines that were not accepted
	Omitted  int                            `json:"omitted"`  // entries left out of both lists, beyond 200 each
}

// declinedLine is a line that was not accepted, and the run that conflicts with it.
type declinedLine struct {
	Line        int                    `json:"line"`
	Transaction string                 `json:"transaction_receipt_id"`
	Reply       postadjudication.Reply `json:"reply"`
	Run         background.RunID       `json:"run_id,omitzero"` // absent if no run conflicts: busy, exceeds_held, escrow_mismatch
	CancelledBy string                 `json:"cancelled_by,omitempty"`
	Reason      string                 `json:"reason,omitempty"` // reason of the cancellation
}

func submitCommand(sh *shell.Shell) *cobra.Command {
	o := backend.Flags{Submits: true}
	cmd := &cobra.Command{
		Use: "submit FILE|-", Short: "Submit adjudications for execution, one JSON object a line", Args: shell.Exactly("FILE"),
		Long: `Submit adjudications for execution, one JSON object of at most 64 KiB a line:

  {"transaction_receipt_id":"txr_1","submission_receipt_id":"sub_1",
   "adjudication_id":"adj_1","generation":1,"tenant":"northwind",
   "escrow_reference":"esc_1","outcome":"release",
   "amount":{"minor":12500,"currency":"USD"},
   "held":{"minor":50000,"currency":"USD"}}

generation (default 1), target, payload and simulate are optional. A target is escrow, or
a name given by --target as for recourse serve; a server knows its own. With --server all
lines are of the key's tenant, and the key's principal is recorded. simulate is for the demonstration's escrow
service: what each call does, such as "retryable,ok". A bad line is reported with its line
and field, and the other lines are still submitted. It is safe to submit the same file
again. Accepted lines are answered deduplicated, already_executed or superseded.
dead_lettered and cancelled: a person has to act, or has acted. The exit code is 1 if a
line was bad or not accepted.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := sh.Open(args[0])
			if err != nil {
				return err
			}
			defer from.Close() // only read from
			if o.Server == "" && cmd.Flags().Changed("tenant") {
				return shell.Usage(cmd, errors.New("--tenant needs --server: on the database each line names its tenant"))
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				return submitLines(ctx, sh, be.Submit, from)
			})
		},
	}
	o.Bind(cmd.Flags())
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.BindTargets(local)
	o.BindLocal(cmd.Flags(), local)
	return cmd
}

// submitter hands adjudications over: it returns an answer or an error for each.
type submitter func(context.Context, []postadjudication.Adjudication) ([]postadjudication.Submitted, []error)

func submitLines(ctx context.Context, sh *shell.Shell, submit submitter, from io.Reader) error {
	h := &submitAnswer{Replies: map[postadjudication.Reply]int{}, Refused: []intake.Problem{}, Declined: []declinedLine{}}
	bar := screen.NewProgress(sh.Err, "submitting", -1)
	err := h.stream(ctx, submit, from, bar)
	if err = errors.Join(err, bar.End()); err != nil {
		return fmt.Errorf("%w (%d lines were read; up to %d of the last may not have been submitted; it is safe to submit the same file again)", err, h.Lines, submitBatchSize)
	}
	if sh.JSON {
		err = sh.Answer(h)
	} else {
		err = h.show(sh.Screen())
	}
	if err == nil && h.notAccepted() > 0 {
		err = fmt.Errorf("%s not accepted", shell.Plural(h.notAccepted(), "line"))
	}
	return err
}

// notAccepted counts the bad lines and the lines that were not accepted.
func (h *submitAnswer) notAccepted() int {
	n := h.BadLines
	for reply, count := range h.Replies {
		if !reply.Accepted() {
			n += count
		}
	}
	return n
}

// stream submits the lines in batches, in their order.
func (h *submitAnswer) stream(ctx context.Context, submit submitter, from io.Reader, bar *screen.Progress) error {
	batch := make([]intake.Line, 0, submitBatchSize)
	for line, err := range intake.Lines(from) {
		if err != nil {
			return err
		}
		h.Lines++
		if len(line.Problems) > 0 && !line.Unsafe {
			h.addBadLine(line)
			continue
		}
		if batch = append(batch, line); len(batch) < submitBatchSize {
			continue
		}
		if err := h.flush(ctx, submit, batch); err != nil {
			return err
		}
		batch = batch[:0]
		if err := bar.At(h.Lines); err != nil {
			return err
		}
	}
	return h.flush(ctx, submit, batch)
}

func (h *submitAnswer) flush(ctx context.Context, submit submitter, chunk []intake.Line) error {
	as := make([]postadjudication.Adjudication, len(chunk))
	for i, l := range chunk {
		as[i] = l.Adjudication
	}
	answers, errs := submit(ctx, as)
	for i, answer := range answers {
		if wrong := lineProblems(errs[i], chunk[i].Number); wrong != nil {
			h.addBadLine(intake.Line{Number: chunk[i].Number, Problems: wrong})
			continue
		}
		if errs[i] != nil {
			return fmt.Errorf("line %d: %w", chunk[i].Number, errs[i])
		}
		h.Replies[answer.Reply]++
		if answer.Reply.Accepted() {
			continue
		}
		if len(h.Declined) == maxListed {
			h.Omitted++
			continue
		}
		h.Declined = append(h.Declined, declinedLine{
			Line: chunk[i].Number, Transaction: redact.Text(as[i].TransactionReceiptID), Reply: answer.Reply, Run: answer.Run, CancelledBy: answer.Actor, Reason: answer.Reason,
		})
	}
	return nil
}

// lineProblems returns why an adjudication was refused for what its line says; none if err is about anything else.
func lineProblems(err error, line int) []intake.Problem {
	if errors.Is(err, refusal.ErrUnrecordable) {
		return []intake.Problem{{Line: line, Problem: redact.Text(err.Error())}}
	}
	return fieldProblems(err, line)
}

// fieldProblems returns the fields that an adjudication was refused for, though its line could be
// read; none if err is not about the adjudication.
func fieldProblems(err error, line int) (out []intake.Problem) {
	if joined, is := err.(interface{ Unwrap() []error }); is {
		for _, e := range joined.Unwrap() {
			out = append(out, fieldProblems(e, line)...)
		}
		return out
	}
	var field *refusal.FieldError
	if errors.As(err, &field) {
		out = append(out, intake.Problem{Line: line, Field: redact.Text(field.Field), Problem: redact.Text(field.Problem)})
	}
	return out
}

func (h *submitAnswer) addBadLine(l intake.Line) {
	h.BadLines++
	for _, p := range l.Problems {
		if len(h.Refused) == maxListed {
			h.Omitted++
			continue
		}
		h.Refused = append(h.Refused, p)
	}
}

func (h *submitAnswer) show(s *screen.Screen) error {
	s.Title("%s", shell.Plural(h.Lines, "line"))
	var rows [][]string
	for _, r := range slices.Sorted(maps.Keys(h.Replies)) {
		word := string(r)
		if !r.Accepted() {
			word = s.Bad(word)
		}
		rows = append(rows, []string{strconv.Itoa(h.Replies[r]), word})
	}
	if h.BadLines > 0 {
		rows = append(rows, []string{strconv.Itoa(h.BadLines), s.Bad("refused as bad input")})
	}
	s.Table([]screen.Column{{Name: "Lines", Right: true}, {Name: "Reply"}}, rows)
	if len(h.Refused) > 0 {
		s.Title("Refused as bad input")
		rows = nil
		for _, p := range h.Refused {
			rows = append(rows, []string{strconv.Itoa(p.Line), cmp.Or(p.Field, "(the line)"), p.Problem})
		}
		s.Table([]screen.Column{{Name: "Line", Right: true}, {Name: "Field"}, {Name: "Problem", Wraps: true}}, rows)
	}
	if len(h.Declined) > 0 {
		s.Title("Not accepted")
		rows = nil
		for _, d := range h.Declined {
			word := string(d.Reply)
			if d.CancelledBy != "" {
				word += " by " + d.CancelledBy + ": " + d.Reason
			}
			run := ""
			if !d.Run.IsZero() {
				run = d.Run.String()
			}
			rows = append(rows, []string{strconv.Itoa(d.Line), word, d.Transaction, run})
		}
		s.Table([]screen.Column{{Name: "Line", Right: true}, {Name: "Reply", Wraps: true}, {Name: "Transaction", Wraps: true}, {Name: "Conflicting run"}}, rows)
	}
	if h.Omitted > 0 {
		s.Text("... and %d more.", h.Omitted)
	}
	return s.Err()
}
