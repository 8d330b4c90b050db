package dlq

import (
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
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

func inspect(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var transaction string
	cmd := &cobra.Command{
		Use: "inspect RUN|TRANSACTION", Short: "Show a dead letter with its attempts, and the actions that are allowed now", Args: shell.Exactly("RUN or TRANSACTION"),
		Long: `Show a dead letter with its attempts, and the actions that are allowed now. Name it by its run,
by its transaction, of which it is the last dead letter, or by the end of either, of 6
characters at least: if it is the end of several, they are listed, and the exit code is 2.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := inspectionOf(ctx, be, args[0])
				if err == nil && transaction != "" && transaction != found.Letter.Transaction {
					err = refusal.ErrNotFound
				}
				if err != nil {
					return o.NotFound(err, "dead letter of "+args[0])
				}
				if sh.JSON {
					return sh.Answer(found)
				}
				return showInspection(sh.Screen(), found)
			})
		},
	}
	o.Bind(cmd.Flags())
	cmd.Flags().StringVar(&transaction, "transaction", "", "find the letter only if it is of this transaction receipt id, or of the job or task with this id (also --job-id)")
	return cmd
}

// inspectionOf returns the dead letter of a run, a transaction or the end of either.
func inspectionOf(ctx context.Context, be backend.Backend, what string) (deadletter.Inspection, error) {
	run, err := receipts.ParseRunID(what)
	if err == nil {
		found, err := be.DeadLetters.Inspect(ctx, run)
		if !errors.Is(err, refusal.ErrNotFound) {
			return found, err
		}
	}
	if run, err = backend.FindLetter(ctx, be.Cases, what); err != nil {
		return deadletter.Inspection{}, err
	}
	return be.DeadLetters.Inspect(ctx, run)
}

func showInspection(s *screen.Screen, i deadletter.Inspection) error {
	l := i.Letter
	s.Title("Letter of run %s", l.Run)
	rows := [][]string{
		{"status", string(l.Status)}, {"died", shell.Timestamp(l.DeadAt) + " UTC, " + shell.Span(l.Age.String()) + " ago"}, {"reason", l.ReasonCode}, {"outcome class", string(l.Class)},
		{"job", l.JobType + " in " + l.Queue + ", replayed " + shell.Plural(l.Replays, "time")},
	}
	if l.Amount != nil {
		rows = append(rows, []string{"adjudicated", string(l.Outcome) + " " + l.Amount.String()})
	}
	if l.AtRisk != nil {
		rows = append(rows, []string{"at risk", l.AtRisk.String()})
	}
	if l.Error != nil {
		rows = append(rows, []string{"failed with", l.Error.Type + ": " + l.Error.Message})
	}
	rows = append(rows, []string{"signature", l.Signature}, []string{"marks", marksText(i.Annotations)})
	if l.ExpiresAt != nil {
		rows = append(rows, []string{"kept until", shell.Timestamp(*l.ExpiresAt) + " UTC"})
	}
	if i.Annotations.Held {
		rows = append(rows, []string{"held", i.Annotations.HoldReason})
	}
	if i.Lookups != nil {
		rows = append(rows, []string{"lookups", lookupText(i.Lookups)})
	}
	found, err := foundText(i)
	if err != nil {
		return err
	}
	if found != "" {
		rows = append(rows, []string{"found", found})
	}
	if i.Handler != nil {
		rows = append(rows, []string{"handled by", "run " + i.Handler.Run.String() + ", which is " + string(i.Handler.State)})
	}
	s.Table([]screen.Column{{Name: "About"}, {Name: "Now", Wraps: true}}, rows)
	s.Title("Allowed actions")
	rows = nil
	for _, a := range i.Actions {
		rows = append(rows, []string{string(a.Name), allowedText(a), strings.Trim(strings.ReplaceAll(fmt.Sprint(a.Roles), " ", ", "), "[]"), a.Why})
	}
	s.Table([]screen.Column{{Name: "Action"}, {Name: "Allowed"}, {Name: "Roles"}, {Name: "Why not", Wraps: true}}, rows)
	showAttempts(s, i.Attempts)
	return view.Case(s, view.CaseAnswer{Case: i.Case})
}

// allowedText returns whether an action is allowed, and until when, or the gate that refuses it.
func allowedText(a deadletter.Action) string {
	switch {
	case !a.Allowed:
		return "no: " + string(a.RefusedBy)
	case a.Until != nil:
		return "until " + shell.Timestamp(*a.Until) + " UTC"
	case len(a.Findings) == 1:
		return "yes, as " + string(a.Findings[0])
	}
	return "yes"
}

// foundText returns what the last lookup or person on record found about the letter's run, for people: after it
// the attempts of unknown outcome decide nothing any more, and who runs the plan of another person sees what it contradicts.
func foundText(i deadletter.Inspection) (string, error) {
	var text string
	for _, r := range i.Receipts {
		if r.Subtype != receipts.Reconciled || r.Run == nil || *r.Run != i.Letter.Run {
			continue
		}
		var p receipts.Payload
		if err := json.Unmarshal(r.Payload, &p); err != nil {
			return "", err
		}
		text = p.Finding + " by " + r.Actor + " at " + shell.Timestamp(r.At) + " UTC"
		if p.Reference != "" {
			text += " (" + p.Reference + ")"
		}
	}
	return text, nil
}

// lookupText returns the lookups about a letter of unknown outcome, for people.
func lookupText(l *deadletter.Lookups) string {
	var parts []string
	if l.AskedAt != nil {
		last := shell.Plural(l.Asked, "time") + ", last at " + shell.Timestamp(*l.AskedAt) + " UTC: " + string(l.Answer)
		if l.Reason != "" {
			last += " (" + l.Reason + ")"
		}
		parts = append(parts, last)
	}
	switch {
	case l.WaitsFor == deadletter.LookupKeyForgotten:
		parts = append(parts, "no further lookups, the escrow service may have forgotten the operation key: record a finding")
	case l.WaitsFor == deadletter.LookupOtherAmount:
		parts = append(parts, "no further lookups, "+strconv.FormatInt(l.Moved, 10)+" minor units were moved, which is not the amount left: record a finding")
	case l.NextAt != nil:
		parts = append(parts, "next at "+shell.Timestamp(*l.NextAt)+" UTC")
	default:
		parts = append(parts, "none yet: recourse serve starts them once no call can be in flight, unless --no-auto-lookups is set")
	}
	return strings.Join(parts, "; ")
}

func marksText(d deadletter.Annotations) string {
	why := "from the cause of death"
	if d.MarkReason != "" {
		why = d.MarkReason
	}
	return "worth a retry by itself: " + shell.YesNo(d.ReprocessEligible) + "; needs review: " + shell.YesNo(d.ManualReviewRequired) + " (" + why + ")"
}

// showAttempts shows each attempt with the error that it ended with.
func showAttempts(s *screen.Screen, attempts []deadletter.Attempt) {
	if len(attempts) == 0 {
		return
	}
	s.Title("Attempts")
	rows := make([][]string, len(attempts))
	for i, a := range attempts {
		ended, took, failure := "running", "", ""
		if a.EndedAt != nil {
			ended, took = string(a.EndedBy), time.Duration(a.Duration*int64(time.Microsecond)).Round(100*time.Microsecond).String()
		}
		if e := a.Error; e != nil {
			failure = strings.Join(strings.Fields(e.Type+" "+e.Code+" "+e.Message), " ")
		}
		rows[i] = []string{strconv.Itoa(a.Number), shell.Timestamp(a.StartedAt), took, ended, string(a.Class), failure}
	}
	s.Table([]screen.Column{{Name: "#", Right: true}, {Name: "Started (UTC)"}, {Name: "Call took", Right: true}, {Name: "Ended by", Optional: true}, {Name: "Known"}, {Name: "Failure", Wraps: true}}, rows)
}
