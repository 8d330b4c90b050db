package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/receipts"
)

func (c *command) dlq() *cobra.Command {
	cmd := &cobra.Command{
		Use: "dlq", Short: "Look at dead letters, try them again, keep or remove them, record what became of their money", Args: c.noSuch,
		Long: `Look at dead letters, try them again, keep or remove them, and record what became of
their money: on the database, or by asking a server.

  recourse dlq list --tenant acme
  recourse dlq list --server https://recourse.example:8321

A server is shown the access key in $` + KeyVariable + `: it says whose letters are meant and in
whose name something is done, so that --tenant and --actor are left out. A server on
loopback with the escrow service for demonstrations asks for no key, but for --tenant.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.dlqList(), c.dlqInspect(), c.dlqAnalyze(), c.dlqStats(), c.dlqExport(), c.dlqFork(), c.dlqRetry(), c.dlqReconcile(), c.dlqHold(), c.dlqRelease(), c.dlqMark(),
		c.dlqPurge(), c.dlqClear(), c.dlqBulk(), c.dlqRules(), c.dlqRetention(), c.dlqRebuild())
	return cmd
}

// onLetter are the flags of every action on one letter.
type onLetter struct {
	office
	reason string
	run    receipts.RunID
}

func (l *onLetter) bind(cmd *cobra.Command) {
	l.bindActor(cmd.Flags())
	cmd.Flags().StringVar(&l.reason, "reason", "", "why (required)")
}

// check reads the run, and refuses flags that are missing.
func (l *onLetter) check(cmd *cobra.Command, run string) (err error) {
	if l.run, err = receipts.ParseRunID(run); err != nil {
		return usage(cmd, errors.New("RUN is no run id: "+run))
	}
	return needReason(cmd, l.reason)
}

func needReason(cmd *cobra.Command, reason string) error {
	if reason == "" {
		return usage(cmd, errors.New("--reason is missing"))
	}
	return nil
}

// withLetter is withBackend for an action on one letter.
func (c *command) withLetter(cmd *cobra.Command, l *onLetter, run string, work func(context.Context, Backend) error) error {
	if err := l.check(cmd, run); err != nil {
		return err
	}
	return c.withBackend(cmd, &l.office, func(ctx context.Context, be Backend) error {
		return l.gone(work(ctx, be), "letter of run "+run)
	})
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

func within(flag string, value, most int) error {
	if value < 1 || value > most {
		return fmt.Errorf("%s is not between 1 and %d", flag, most)
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
