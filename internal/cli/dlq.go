package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

func (c *command) dlq() *cobra.Command {
	cmd := &cobra.Command{
		Use: "dlq", Short: "Look at dead letters, try them again, record what became of their money", Args: c.noSuch,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.dlqList(), c.dlqFork(), c.dlqReconcile())
	return cmd
}

// onLetter are the flags of every action on one letter.
type onLetter struct {
	app.Options
	tenant, actor, reason string
	run                   receipts.RunID
}

func (l *onLetter) bind(cmd *cobra.Command) {
	l.BindServers(cmd.Flags())
	tenantFlag(cmd.Flags(), &l.tenant)
	cmd.Flags().StringVar(&l.actor, "actor", "", "who asks (required)")
	cmd.Flags().StringVar(&l.reason, "reason", "", "why (required)")
}

func (l *onLetter) check(cmd *cobra.Command, run string) (err error) {
	if l.run, err = receipts.ParseRunID(run); err != nil {
		return usage(cmd, errors.New("RUN is no run id: "+run))
	}
	if l.actor == "" || l.reason == "" {
		return usage(cmd, errors.New("--actor and --reason are needed"))
	}
	return needTenant(cmd, l.tenant)
}

func (c *command) dlqFork() *cobra.Command {
	var l onLetter
	cmd := &cobra.Command{
		Use: "fork RUN", Short: "Try an open dead letter again, with a fresh budget", Args: exactly("RUN"),
		Long: `Try an open dead letter again: a new run in the same case, which really executes.
A letter has one fork at most. It is refused while it is unknown whether money moved
and the operation key may be over: reconcile it first.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := l.check(cmd, args[0]); err != nil {
				return err
			}
			service, err := c.open(cmd.Context(), l.Options)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			fork, err := service.Fork(cmd.Context(), l.tenant, l.run, postadjudication.ForkRequest{Actor: l.actor, Reason: l.reason})
			if err != nil {
				return missing(err, l.tenant, "run "+args[0])
			}
			if c.json {
				return c.answer(map[string]any{"run_id": fork.Run, "case_id": fork.Case, "parent_run_id": l.run, "state": fork.State})
			}
			s := screen.New(c.Out)
			s.Text("Run %s tries again what run %s died on.", fork.Run, l.run)
			return s.Err()
		},
	}
	l.bind(cmd)
	return cmd
}

func (c *command) dlqReconcile() *cobra.Command {
	var l onLetter
	var finding, reference string
	var moved int64
	cmd := &cobra.Command{
		Use: "reconcile RUN", Short: "Record what became of an open dead letter's money", Args: exactly("RUN"),
		Long: `Record what became of an open dead letter's money. "executed" with what was moved
settles the case and closes the letter; "not_executed" clears what was unknown, so
that the letter can be forked. The reference says where the finding can be checked.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := l.check(cmd, args[0]); err != nil {
				return err
			}
			service, err := c.open(cmd.Context(), l.Options)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			kase, err := service.Reconcile(cmd.Context(), l.tenant, l.run, postadjudication.Finding{
				Actor: l.actor, Reason: l.reason, Class: background.Class(finding), Moved: moved, Reference: reference,
			})
			if err != nil {
				return missing(err, l.tenant, "run "+args[0])
			}
			if c.json {
				return c.answer(kase)
			}
			s := screen.New(c.Out)
			s.Text("Recorded. The case of %s is %s; %s of unknown outcome.", kase.Transaction, kase.Progression, plural(kase.UnknownOpen, "attempt"))
			return s.Err()
		},
	}
	l.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&finding, "finding", "", "executed or not_executed (required)")
	f.Int64Var(&moved, "moved", 0, "what was moved, in minor units; with executed")
	f.StringVar(&reference, "reference", "", "where the finding can be checked (required)")
	return cmd
}

func (c *command) dlqList() *cobra.Command {
	var o app.Options
	var tenant, since, until, standing, class string
	var filter postadjudication.LetterFilter
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, the newest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := needTenant(cmd, tenant); err != nil {
				return err
			}
			filter.Standing, filter.Class = background.Letter(standing), background.Class(class)
			if err := errors.Join(instant("--since", since, &filter.From), instant("--until", until, &filter.To), oneOf("--standing", standing, "open", "forked", "reconciled", "superseded", "purged"),
				oneOf("--class", class, "executed", "not_executed", "unknown"), oneOf("--outcome", filter.Outcome, "release", "refund")); err != nil {
				return usage(cmd, err)
			}
			service, err := c.open(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			letters, more, err := firstLetters(cmd.Context(), service, tenant, filter, limit)
			if err != nil {
				return err
			}
			if c.json {
				return c.answer(map[string]any{"letters": letters, "more": more})
			}
			return showLetters(screen.New(c.Out), letters, more)
		},
	}
	f := cmd.Flags()
	o.BindServers(f)
	tenantFlag(f, &tenant)
	f.StringVar(&standing, "standing", "open", "open, forked, reconciled, superseded or purged; empty for all")
	f.StringVar(&filter.ReasonCode, "reason", "", "reason code of the death, such as final or retry_exhausted")
	f.StringVar(&class, "class", "", "executed, not_executed or unknown")
	f.StringVar(&filter.ErrorType, "error-type", "", "type of the last failure, such as http.refused")
	f.StringVar(&filter.Transaction, "transaction", "", "transaction receipt id")
	f.StringVar(&filter.Outcome, "outcome", "", "release or refund")
	f.StringVar(&since, "since", "", "died at or after this time, RFC 3339")
	f.StringVar(&until, "until", "", "died before this time, RFC 3339")
	f.IntVar(&limit, "limit", 50, "at most this many, 1 to 1000")
	return cmd
}

func firstLetters(ctx context.Context, service *postadjudication.Service, tenant string, f postadjudication.LetterFilter, limit int) ([]postadjudication.Letter, bool, error) {
	letters, _, more, err := service.Letters(ctx, tenant, f, postadjudication.LetterCursor{}, limit)
	if letters == nil {
		letters = []postadjudication.Letter{}
	}
	return letters, more, err
}

// instant reads a time that may be left out. A word that is no time must not widen
// the filter.
func instant(flag, text string, to *time.Time) (err error) {
	if text == "" {
		return nil
	}
	if *to, err = time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("%s is no RFC 3339 time: %s", flag, text)
	}
	return nil
}

func oneOf(flag, value string, words ...string) error {
	if value == "" {
		return nil
	}
	for _, w := range words {
		if value == w {
			return nil
		}
	}
	return fmt.Errorf("%s must be one of %s", flag, strings.Join(words, ", "))
}

func showLetters(s *screen.Screen, letters []postadjudication.Letter, more bool) error {
	if len(letters) == 0 {
		s.Text("No dead letters.")
		return s.Err()
	}
	rows := make([][]string, len(letters))
	for i, l := range letters {
		why, risk, may := l.ReasonCode, "-", "fork"
		if l.Error != nil {
			why += ": " + l.Error.Type
		}
		if l.AtRisk != nil {
			risk = l.AtRisk.String()
		}
		if !l.CanFork {
			may = string(l.RefusedBy)
		}
		rows[i] = []string{l.DeadAt.Format("2006-01-02 15:04:05"), l.Run.String(), l.Transaction, string(l.Outcome), risk, why, string(l.Class), may}
	}
	s.Table([]screen.Column{{Name: "Died"}, {Name: "Run"}, {Name: "Transaction", Spare: true}, {Name: "Outcome", Spare: true}, {Name: "At risk", Right: true},
		{Name: "Why", Wraps: true}, {Name: "Known"}, {Name: "Now"}}, rows)
	if more {
		s.Text("There may be more: narrow the filter or raise --limit.")
	}
	return s.Err()
}
