package webhook

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts/events"
)

// secretFlag names the file with a secret that the caller chose.
type secretFlag struct{ file string }

func (f *secretFlag) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "secret-file", "", "file with the secret, or - for standard input: whsec_ and 24 to 64 random bytes as base64 (default: one is generated)")
}

// read returns the secret in the file; empty if none is named.
func (f *secretFlag) read(cmd *cobra.Command, sh *shell.Shell) (string, error) {
	if f.file == "" {
		return "", nil
	}
	from, err := sh.Open(f.file)
	if err != nil {
		return "", err
	}
	defer from.Close() // only read from
	text, err := io.ReadAll(io.LimitReader(from, 1<<10))
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", shell.Usage(cmd, errors.New("--secret-file has no secret"))
	}
	return secret, nil
}

// bindAllow defines the flag that opens addresses, which a server has of its own.
func bindAllow(cmd *cobra.Command, o *backend.Flags) {
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.BindWebhooks(local)
	o.BindLocal(cmd.Flags(), local)
}

func create(sh *shell.Shell) *cobra.Command {
	o := backend.ChangeFlags{Flags: backend.Flags{Webhooks: true}}
	var secret secretFlag
	var only []string
	var description string
	var after int64
	cmd := &cobra.Command{
		Use: "create URL", Short: "Create a webhook and print its secret; it is not shown again", Args: shell.Exactly("URL"),
		Long: `Create a webhook and print its secret, which is not shown again. From now on every event is
sent to the URL; with --after also earlier ones. The URL is kept in receipts: it must not
contain a secret, and needs none, because requests are signed.

On the database, a URL that is private or plain http needs --webhooks-allow with its network.
recourse serve needs the same flag to send there.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Check(cmd); err != nil {
				return err
			}
			n := webhooks.New{URL: args[0], Description: description, Reason: o.Reason}
			for _, t := range only {
				n.Types = append(n.Types, events.Type(t))
			}
			if cmd.Flags().Changed("after") {
				position := webhooks.Position(after)
				n.After = &position
			}
			var err error
			if n.Secret, err = secret.read(cmd, sh); err != nil {
				return err
			}
			return backend.With(sh, cmd, &o.Flags, func(ctx context.Context, be backend.Backend) error {
				made, secret, err := be.Webhooks.Create(ctx, n)
				if err != nil {
					return err
				}
				return answerSecret(sh, made, secret)
			})
		},
	}
	o.Bind(cmd)
	bindAllow(cmd, &o.Flags)
	f := cmd.Flags()
	f.StringArrayVar(&only, "type", nil, "type of events to send, such as run.dead_lettered; repeatable (default: all): "+strings.Join(typeNames(), ", "))
	f.StringVar(&description, "description", "", "description for people")
	f.Int64Var(&after, "after", 0, "send the events after this position, also those of the past; 0: all (default: those from now on)")
	secret.bind(f)
	return cmd
}

func typeNames() (out []string) {
	for _, t := range events.Types() {
		out = append(out, string(t))
	}
	return out
}

// answerSecret writes a webhook with its secret.
func answerSecret(sh *shell.Shell, w webhooks.Webhook, secret string) error {
	if sh.JSON {
		return sh.Answer(api.NewWebhook{Secret: secret, Webhook: w})
	}
	s := sh.Screen()
	s.Text("%s", secret)
	s.Text("Give it to the receiver now, it is not shown again: it verifies that requests are of this webhook.")
	showOne(s, w)
	return s.Err()
}

func rotate(sh *shell.Shell) *cobra.Command {
	o := backend.ChangeFlags{Flags: backend.Flags{Webhooks: true}}
	var secret secretFlag
	overlap := deadletter.Duration(webhooks.DefaultOverlap)
	cmd := &cobra.Command{
		Use: "rotate ID", Short: "Give a webhook another secret and print it; it is not shown again", Args: shell.Exactly("ID"),
		Long: `Give a webhook another secret and print it; it is not shown again. Until the overlap ends,
each request has two signatures, of the new secret and of the former one, so that a
receiver that knows either accepts it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID(cmd, args[0])
			if err != nil {
				return err
			}
			if err := o.Check(cmd); err != nil {
				return err
			}
			given, err := secret.read(cmd, sh)
			if err != nil {
				return err
			}
			both := time.Duration(overlap)
			if both == 0 {
				both = -1 // none; 0 would be the default
			}
			return backend.With(sh, cmd, &o.Flags, func(ctx context.Context, be backend.Backend) error {
				changed, secret, err := be.Webhooks.Rotate(ctx, id, given, both, o.Reason)
				if err != nil {
					return o.NotFound(err, "webhook "+args[0])
				}
				return answerSecret(sh, changed, secret)
			})
		},
	}
	o.Bind(cmd)
	cmd.Flags().Var(&overlap, "overlap", "how long requests are also signed with the former secret, such as 90m, 36h or 7d, at most 30d; 0s: not at all")
	secret.bind(cmd.Flags())
	return cmd
}

// changeCommand returns a command that changes a webhook and needs nothing but a reason.
func changeCommand(sh *shell.Shell, verb, short, long string, change func(be backend.Webhooks, ctx context.Context, id uuid.UUID, reason string) (webhooks.Webhook, error)) *cobra.Command {
	var o backend.ChangeFlags
	cmd := &cobra.Command{
		Use: verb + " ID", Short: short, Args: shell.Exactly("ID"), Long: long,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID(cmd, args[0])
			if err != nil {
				return err
			}
			if err := o.Check(cmd); err != nil {
				return err
			}
			return backend.With(sh, cmd, &o.Flags, func(ctx context.Context, be backend.Backend) error {
				changed, err := change(be.Webhooks, ctx, id, o.Reason)
				if err != nil {
					return o.NotFound(err, "webhook "+args[0])
				}
				return answer(sh, changed)
			})
		},
	}
	o.Bind(cmd)
	return cmd
}

func replay(sh *shell.Shell) *cobra.Command {
	var o backend.ChangeFlags
	var after int64
	cmd := &cobra.Command{
		Use: "replay ID", Short: "Continue a webhook after another position", Args: shell.Exactly("ID"),
		Long: `Continue a webhook after another position. After an earlier one, events are sent again,
with the same webhook-id each. After a later one, the events between are skipped, also
those that wait: this is the only way in which a webhook skips events. recourse events
lists events with their positions.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID(cmd, args[0])
			if err != nil {
				return err
			}
			if err := o.Check(cmd); err != nil {
				return err
			}
			if !cmd.Flags().Changed("after") {
				return shell.Usage(cmd, errors.New("--after is missing"))
			}
			return backend.With(sh, cmd, &o.Flags, func(ctx context.Context, be backend.Backend) error {
				changed, err := be.Webhooks.Replay(ctx, id, webhooks.Position(after), o.Reason)
				if err != nil {
					return o.NotFound(err, "webhook "+args[0])
				}
				return answer(sh, changed)
			})
		},
	}
	o.Bind(cmd)
	cmd.Flags().Int64Var(&after, "after", 0, "position of the last event that is not sent (required); 0: all events are sent")
	return cmd
}

func test(sh *shell.Shell) *cobra.Command {
	o := backend.Flags{Webhooks: true}
	cmd := &cobra.Command{
		Use: "test ID", Short: "Send one test event to a webhook, and show what the receiver answered", Args: shell.Exactly("ID"),
		Long: `Send one event of the type dev.recourse.webhook.test to a webhook, also to a paused one, and
wait for the answer. It is signed as all are, is tried once, and leaves no trace.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID(cmd, args[0])
			if err != nil {
				return err
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				trial, err := be.Webhooks.Test(ctx, id)
				if err != nil {
					return o.NotFound(err, "webhook "+args[0])
				}
				return answerTrial(sh, trial)
			})
		},
	}
	o.Bind(cmd.Flags())
	bindAllow(cmd, &o)
	return cmd
}

// answerTrial writes the result of a test. That the event was not accepted is an error.
func answerTrial(sh *shell.Shell, trial webhooks.Trial) error {
	var err error
	if !trial.Delivered {
		err = shell.WithCode(shell.ExitFailed, errors.New("the test event was not accepted: "+trial.Failure))
	}
	if sh.JSON {
		return errors.Join(err, sh.Answer(trial))
	}
	if err != nil {
		return err
	}
	s := sh.Screen()
	s.Text("The receiver accepted the test event %s.", trial.Event)
	return s.Err()
}
