package webhook

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/history"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// Command is the group of commands about webhooks.
func Command(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "webhook", Short: "Send the events of a tenant to URLs, signed", Args: shell.UnknownCommand,
		Long: `Send the events of a tenant to URLs. recourse events lists the same events.

Each event is one POST request. Its body is a CloudEvent 1.0 as JSON, of the type
dev.recourse.EVENT. It is signed as Standard Webhooks has it, by the headers webhook-id,
webhook-timestamp and webhook-signature, with a secret that create and rotate print once.

An answer of 2xx accepts an event. After any other answer, or none within 15 seconds, the
event is sent again, with the same webhook-id: after a second at first, then after twice
the time each, up to an hour. An event can arrive twice: a receiver has to ignore a
webhook-id that it has handled.

A webhook pauses when a person pauses it, when the receiver answers 410, and when an event
was not accepted for three days; the event webhook.paused then says so. While it is paused
nothing is sent and nothing is skipped: resume continues it where it stopped. Events are
skipped only if a person says so, with replay and a later position.

One recourse serve of all that have $` + app.WebhookKeyVariable + ` sends the events. The variable has
the key that encrypts the secrets: 32 random bytes as base64, as openssl rand -base64 32
prints. create, rotate and test on the database need the same key. Requests go to public
addresses by https, and to others only as serve --webhooks-allow says.

--server uses a server, with the key of an admin in $` + backend.KeyVariable + `.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(create(sh), list(sh), show(sh), rotate(sh), replay(sh), test(sh),
		changeCommand(sh, "pause", "Stop sending to a webhook; nothing is skipped", `Stop sending to a webhook. Within about a second no further request begins; one that has
begun may take 15 seconds. Events from then on are sent after recourse webhook resume.`, backend.Webhooks.Pause),
		changeCommand(sh, "resume", "Continue a paused webhook where it stopped", `Continue a paused webhook where it stopped. A webhook that is not paused but fails tries
again at once.`, backend.Webhooks.Resume),
		changeCommand(sh, "delete", "Delete a webhook and its secret for good", `Delete a webhook and its secret for good. What it has not sent is not sent. Its receipts
stay.`, backend.Webhooks.Delete),
		history.Command(sh, postadjudication.OperationLogWebhooks, "List who created, paused, resumed, rotated, replayed and deleted webhooks, from the receipts"))
	return cmd
}

// parseID parses the argument that names a webhook.
func parseID(cmd *cobra.Command, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, shell.Usage(cmd, errors.New("ID is not the id of a webhook: "+text))
	}
	return id, nil
}

func list(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	cmd := &cobra.Command{
		Use: "list", Short: "List the webhooks of a tenant, and how far each is", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.Webhooks.List(ctx)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(map[string]any{"webhooks": append([]webhooks.Webhook{}, found...)})
				}
				return showAll(sh.Screen(), o.TenantLabel(), found)
			})
		},
	}
	o.Bind(cmd.Flags())
	return cmd
}

func showAll(s *screen.Screen, tenant string, all []webhooks.Webhook) error {
	if len(all) == 0 {
		s.Text("%s has no webhook.", tenant)
		return s.Err()
	}
	rows := make([][]string, len(all))
	for i, w := range all {
		rows[i] = []string{w.ID.String(), w.URL, stateText(w), strconv.FormatInt(int64(w.Position), 10), strconv.Itoa(w.Waiting), strconv.FormatInt(w.Delivered, 10), types(w)}
	}
	s.Table([]screen.Column{{Name: "Webhook"}, {Name: "URL", Wraps: true}, {Name: "State"}, {Name: "Position", Right: true, Optional: true}, {Name: "Waiting", Right: true}, {Name: "Delivered", Right: true, Optional: true}, {Name: "Types", Optional: true}}, rows)
	return s.Err()
}

// stateText returns the state of a webhook for people, and whether it fails.
func stateText(w webhooks.Webhook) string {
	if w.State == webhooks.Active && w.Failures > 0 {
		return "active, fails"
	}
	return string(w.State)
}

// types returns the types of events that a webhook sends, for people.
func types(w webhooks.Webhook) string {
	if len(w.Types) == 0 {
		return "all"
	}
	names := make([]string, len(w.Types))
	for i, t := range w.Types {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}

func show(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a webhook, how far it is, and why it fails", Args: shell.Exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID(cmd, args[0])
			if err != nil {
				return err
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.Webhooks.Get(ctx, id)
				if err != nil {
					return o.NotFound(err, "webhook "+args[0])
				}
				return answer(sh, found)
			})
		},
	}
	o.Bind(cmd.Flags())
	return cmd
}

// answer writes a webhook.
func answer(sh *shell.Shell, w webhooks.Webhook) error {
	if sh.JSON {
		return sh.Answer(w)
	}
	s := sh.Screen()
	showOne(s, w)
	return s.Err()
}

func showOne(s *screen.Screen, w webhooks.Webhook) {
	rows := [][]string{
		{"webhook", w.ID.String()}, {"URL", w.URL}, {"types", types(w)}, {"state", string(w.State)},
		{"created", at(w.CreatedAt) + " by " + w.CreatedBy}, {"changed", at(w.ChangedAt) + " by " + w.ChangedBy + ": " + w.Reason},
	}
	if w.Description != "" {
		rows = append(rows, []string{"description", w.Description})
	}
	if !w.FormerSecretUntil.IsZero() {
		rows = append(rows, []string{"former secret", "signs too until " + at(w.FormerSecretUntil)})
	}
	if w.State != webhooks.Deleted {
		delivered := strconv.FormatInt(w.Delivered, 10)
		if !w.DeliveredAt.IsZero() {
			delivered += ", the last one at " + at(w.DeliveredAt)
		}
		rows = append(rows, []string{"position", strconv.FormatInt(int64(w.Position), 10)}, []string{"waiting", shell.Plural(w.Waiting, "event")}, []string{"delivered", delivered})
	}
	if w.LastFailure != "" && w.Failures > 0 {
		rows = append(rows, []string{"failed", shell.Plural(int(w.Failures), "time") + ", the last time: " + w.LastFailure})
	}
	if !w.FailingSince.IsZero() {
		rows = append(rows, []string{"failing since", at(w.FailingSince)})
	}
	s.Table([]screen.Column{{Name: "What"}, {Name: "Is", Wraps: true}}, rows)
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }
