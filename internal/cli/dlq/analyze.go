package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
)

// analyzeFlags are the flags of an analysis.
type analyzeFlags struct {
	backend.Flags
	letters             letterFlags
	step, export, group string
	steps               int
	all                 bool
}

func analyze(sh *shell.Shell) *cobra.Command {
	var a analyzeFlags
	cmd := &cobra.Command{
		Use: "analyze", Short: "Group dead letters by cause, and count them by reason, time and money", Args: shell.Exactly(),
		Long: `Group dead letters by cause, and count them by reason, time and money. The output has the
ten largest causes; --all lists all causes, and --group limits the whole analysis to one
cause, by its signature.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := a.query(cmd)
			if err != nil {
				return shell.Usage(cmd, err)
			}
			return backend.With(sh, cmd, &a.Flags, func(ctx context.Context, be backend.Backend) error {
				found, err := a.run(ctx, be, q)
				if err != nil {
					return err
				}
				if a.export != "" {
					if err := writeAnalysis(a.export, found); err != nil {
						return err
					}
				}
				if sh.JSON {
					return sh.Answer(found)
				}
				return showAnalysis(sh.Screen(), found)
			})
		},
	}
	f := cmd.Flags()
	a.Bind(f)
	a.letters.bind(f)
	f.StringVar(&a.step, "step", string(report.Days), "width of a time interval: hour or day")
	f.IntVar(&a.steps, "steps", 30, "number of time intervals, 1 to 1000")
	f.StringVar(&a.export, "export", "", "file to write the whole analysis to, as JSON")
	f.BoolVar(&a.all, "all", false, "list all causes, ordered by signature")
	f.StringVar(&a.group, "group", "", "only the cause with this signature, as the analysis shows it")
	return cmd
}

func (a *analyzeFlags) query(cmd *cobra.Command) (report.Query, error) {
	filter, err := a.letters.read()
	if a.steps < 1 {
		err = errors.Join(err, errors.New("--steps must be at least 1"))
	}
	if cmd.Flags().Changed("group") {
		switch {
		case a.group == "":
			err = errors.Join(err, errors.New("--group is empty; leave it out"))
		case filter.Signature != "":
			err = errors.Join(err, errors.New("--group and --signature exclude each other"))
		}
		filter.Signature = a.group
	}
	err = errors.Join(err, shell.OneOf("--step", a.step, string(report.Hours), string(report.Days)))
	return report.Query{Filter: filter, Step: report.TimeStep(a.step), Steps: a.steps}, err
}

// run returns the analysis. With --all it reads all causes by pages, ordered by signature: in the
// other orders a cause can be missed or repeated if its rank changes between pages.
func (a *analyzeFlags) run(ctx context.Context, be backend.Backend, q report.Query) (report.Analysis, error) {
	found, err := be.DeadLetters.Analyze(ctx, q)
	if err != nil || !a.all {
		return found, err
	}
	groups := report.GroupQuery{Filter: q.Filter, Sort: report.GroupsBySignature, Limit: groupPageSize}
	found.Largest = nil
	for {
		page, err := be.DeadLetters.Groups(ctx, groups)
		if err != nil {
			return found, err
		}
		found.Largest = append(found.Largest, page.Groups...)
		if groups.After = page.Next; !page.More {
			found.Groups = len(found.Largest)
			return found, nil
		}
	}
}

// groupPageSize is how many causes one request returns.
const groupPageSize = 500

// writeAnalysis writes an analysis to a file.
func writeAnalysis(name string, found report.Analysis) error {
	text, err := json.MarshalIndent(found, "", " ")
	if err != nil {
		return err
	}
	return shell.WriteFile(name, func(out io.Writer) error {
		_, err := out.Write(append(text, '\n'))
		return err
	})
}

func showAnalysis(s *screen.Screen, a report.Analysis) error {
	if a.Letters == 0 {
		s.Text("No dead letters.")
	} else {
		s.Text("%d dead letters, %d of them open, with %s at risk; %.1f attempts each.", a.Letters, a.Open, shell.Amounts(a.AtRisk), a.Attempts)
	}
	if without := a.Reserved.WithoutLetter; without.Cases > 0 {
		s.Text("%s without a live run or an open letter keep %s reserved: cases list --without-letter", shell.Plural(int(without.Cases), "case"), shell.Amounts(without.Money))
	}
	if a.Letters == 0 {
		return s.Err()
	}
	if a.Oldest != nil {
		s.Text("The oldest open one died %s ago: run %s. Retention removes %d within 7 days.", shell.Span(a.Oldest.Age.String()), a.Oldest.Run, a.Expiring)
	}
	s.Title("Causes, %d of %d", len(a.Largest), a.Groups)
	rows := make([][]string, len(a.Largest))
	for i, g := range a.Largest {
		rows[i] = []string{strconv.FormatInt(g.Letters, 10), shell.Amounts(g.AtRisk), shell.Timestamp(g.FirstSeen), shell.Timestamp(g.LastSeen), g.Sample.String(), g.Signature}
	}
	s.Table([]screen.Column{{Name: "Letters", Right: true}, {Name: "At risk"}, {Name: "First (UTC)", Optional: true}, {Name: "Last (UTC)", Optional: true}, {Name: "Example"}, {Name: "Signature", Wraps: true}}, rows)
	for _, by := range []struct {
		name   string
		shares []report.Share
	}{{"By reason", a.ByReason}, {"By outcome class", a.ByClass}, {"By error", a.ByErrorType}, {"By queue", a.ByQueue}, {"By outcome", a.ByOutcome}} {
		showShares(s, by.name, by.shares)
	}
	s.Title("Trends")
	rows = nil
	for _, t := range a.Trends {
		rows = append(rows, []string{shell.Span(t.Window.String()), strconv.FormatInt(t.Letters, 10), strconv.FormatInt(t.Before, 10)})
	}
	s.Table([]screen.Column{{Name: "Last"}, {Name: "Died", Right: true}, {Name: "Previous period", Right: true}}, rows)
	showTimes(s, a)
	return s.Err()
}

func showShares(s *screen.Screen, name string, shares []report.Share) {
	if len(shares) == 0 {
		return
	}
	s.Title("%s", name)
	rows := make([][]string, len(shares))
	for i, share := range shares {
		value := share.Value
		if value == "" {
			value = "-"
		}
		rows[i] = []string{strconv.FormatInt(share.Letters, 10), value, shell.Amounts(share.AtRisk)}
	}
	s.Table([]screen.Column{{Name: "Letters", Right: true}, {Name: "Value", Wraps: true}, {Name: "At risk"}}, rows)
}

// showTimes shows when letters died, without intervals in which none did.
func showTimes(s *screen.Screen, a report.Analysis) {
	s.Title("Deaths")
	var rows [][]string
	for _, t := range a.Times {
		if t.Letters > 0 {
			rows = append(rows, []string{shell.Timestamp(t.From), strconv.FormatInt(t.Letters, 10)})
		}
	}
	if a.Earlier > 0 {
		rows = append(rows, []string{"earlier", fmt.Sprint(a.Earlier)})
	}
	s.Table([]screen.Column{{Name: "From (UTC)"}, {Name: "Died", Right: true}}, rows)
}
