package cli

import (
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
		Use: "dlq", Short: "Look at dead letters, try them again, keep or remove them, record what became of their money", Args: c.noSuch,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.dlqList(), c.dlqFork(), c.dlqRetry(), c.dlqReconcile(), c.dlqHold(), c.dlqRelease(), c.dlqMark(), c.dlqPurge(), c.dlqClear())
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
	var p policyFlags
	var queue string
	cmd := &cobra.Command{
		Use: "fork RUN", Short: "Try an open dead letter again, with a fresh budget", Args: exactly("RUN"),
		Long: `Try an open dead letter again: a new run in the same case, which really executes.
A letter has one fork at most. It is refused while it is unknown whether money moved
and the operation key may be over: reconcile it first. Policy and queue may be changed
for the fork; what the escrow service is sent may not.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := l.check(cmd, args[0]); err != nil {
				return err
			}
			service, err := c.open(cmd.Context(), l.Options)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			q := postadjudication.ForkRequest{Actor: l.actor, Reason: l.reason, Queue: queue}
			if p.given(cmd) {
				letter, err := service.Status(cmd.Context(), l.tenant, l.run)
				if err != nil {
					return missing(err, l.tenant, "run "+args[0])
				}
				policy, err := p.over(cmd, letter.Policy)
				if err != nil {
					return err
				}
				q.Policy = &policy
			}
			fork, err := service.Fork(cmd.Context(), l.tenant, l.run, q)
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
	p.bind(cmd)
	cmd.Flags().StringVar(&queue, "queue", "", "another queue of the family, such as settlement:1")
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
