package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
	"github.com/recourse-dev/recourse/settlement"
)

func stats(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var letters letterFlags
	var all bool
	cmd := &cobra.Command{
		Use: "stats", Short: "Count dead letters by status, age and error, with the money at risk", Args: shell.Exactly(),
		Long: `Count dead letters by status, age and error, with the money at risk. The flags select
letters. The sums of reserved money are of all cases of the tenant: with an open dead
letter, with a live run, and without either. The last are found by recourse cases list
--without-letter. With --all-tenants each tenant has a row, and their sum has the last one;
at a server that takes a key with the role platform.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := letters.read()
			if err != nil {
				return shell.Usage(cmd, err)
			}
			if !cmd.Flags().Changed("status") {
				filter.Status = "" // the counts are by status
			}
			if all {
				return statsByTenant(sh, cmd, &o, filter)
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.DeadLetters.Stats(ctx, filter)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(found)
				}
				return showStats(sh.Screen(), found)
			})
		},
	}
	o.Bind(cmd.Flags())
	letters.bind(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all-tenants", false, "all tenants, instead of --tenant; with --server by a key made with --platform")
	return cmd
}

// tenantStats is the answer of dlq stats --all-tenants.
type tenantStats struct {
	Tenants []report.TenantStats `json:"tenants"`
}

func statsByTenant(sh *shell.Shell, cmd *cobra.Command, o *backend.Flags, filter deadletter.Filter) error {
	if o.Tenant != "" {
		return shell.Usage(cmd, errors.New("--tenant and --all-tenants exclude each other"))
	}
	if o.Server == "" || sh.Getenv(backend.KeyVariable) == "" { // a key has a tenant of its own
		o.Tenant = postadjudication.AllTenants
	}
	return backend.With(sh, cmd, o, func(ctx context.Context, be backend.Backend) error {
		found, err := be.StatsByTenant(ctx, filter)
		if err != nil {
			return err
		}
		if sh.JSON {
			return sh.Answer(tenantStats{found})
		}
		return showStatsByTenant(sh.Screen(), found)
	})
}

// showStatsByTenant writes a row for each tenant, and the row of their sums if there are several.
func showStatsByTenant(s *screen.Screen, found []report.TenantStats) error {
	sums := func(t report.TenantStats) []settlement.Sums {
		return []settlement.Sums{t.AtRisk, t.Reserved.All.Money, t.Reserved.OpenLetters.Money, t.Reserved.LiveRuns.Money, t.Reserved.WithoutLetter.Money}
	}
	row := func(tenant string, open int64, money []settlement.Sums) []string {
		out := []string{tenant, strconv.FormatInt(open, 10)}
		for _, m := range money {
			out = append(out, shell.Amounts(m))
		}
		return out
	}
	var rows [][]string
	var open int64
	all := []settlement.Sums{{}, {}, {}, {}, {}}
	for _, t := range found {
		open += t.Open
		for i, money := range sums(t) {
			for currency, sum := range money {
				all[i].Add(currency, sum)
			}
		}
		rows = append(rows, row(t.Tenant, t.Open, sums(t)))
	}
	if len(found) > 1 {
		rows = append(rows, row("all", open, all))
	}
	s.Table([]screen.Column{{Name: "Tenant"}, {Name: "Open", Right: true}, {Name: "At risk", Wraps: true}, {Name: "Reserved", Wraps: true},
		{Name: "Open letters", Wraps: true}, {Name: "Live runs", Wraps: true}, {Name: "Without a letter", Wraps: true}}, rows)
	return s.Err()
}

// waitingFor are words for what a case without a letter waits for.
var waitingFor = map[string]string{
	casestatus.WaitsForPurgedLetter:     "its letter was purged",
	casestatus.WaitsForFreeing:          "the fork of its letter was cancelled",
	casestatus.WaitsForRestOfPayment:    "paid in part or under an older key",
	casestatus.WaitsForFinding:          "unknown whether money moved",
	casestatus.WaitsForHigherGeneration: "a higher generation must follow",
}

func showReserved(s *screen.Screen, r casestatus.ReservedMoney) {
	s.Title("Reserved by all cases")
	row := func(name string, sums casestatus.ReservedSums) []string {
		return []string{name, strconv.FormatInt(sums.Cases, 10), shell.Amounts(sums.Money)}
	}
	rows := [][]string{row("with an open dead letter", r.OpenLetters), row("with a live run", r.LiveRuns), row("without a letter", r.WithoutLetter)}
	for _, waits := range slices.Sorted(maps.Keys(r.WaitingFor)) {
		rows = append(rows, row("- "+cmp.Or(waitingFor[waits], waits), r.WaitingFor[waits]))
	}
	s.Table([]screen.Column{{Name: "Cases"}, {Name: "Number", Right: true}, {Name: "Reserved", Wraps: true}}, append(rows, row("all", r.All)))
	if r.WithoutLetter.Cases > 0 {
		s.Text("No list of dead letters shows those without a letter: cases list --without-letter")
	}
}

func showStats(s *screen.Screen, st report.Stats) error {
	rows := [][]string{{"dead letters", strconv.FormatInt(st.Letters, 10)}}
	for _, status := range slices.Sorted(maps.Keys(st.ByStatus)) {
		rows = append(rows, []string{string(status), strconv.FormatInt(st.ByStatus[status], 10)})
	}
	rows = append(rows,
		[]string{"at risk", shell.Amounts(st.AtRisk)}, []string{"average attempts", fmt.Sprintf("%.1f", st.Attempts)},
		[]string{"worth a retry by itself", strconv.FormatInt(st.Reprocess, 10)}, []string{"needing review", strconv.FormatInt(st.Review, 10)},
		[]string{"held", strconv.FormatInt(st.Held, 10)}, []string{"expiring within 7 days", strconv.FormatInt(st.Expiring, 10)},
		[]string{"died in the last hour, day", fmt.Sprintf("%d, %d", st.DiedLastHour, st.DiedLastDay)})
	if st.Oldest != nil {
		rows = append(rows, []string{"oldest open", fmt.Sprintf("died %s ago: run %s", shell.Span(st.Oldest.Age.String()), st.Oldest.Run)})
	}
	s.Table([]screen.Column{{Name: "About"}, {Name: "Now", Wraps: true}}, rows)
	showReserved(s, st.Reserved)
	showShares(s, "Open, by outcome class", st.ByClass)
	showShares(s, "Open, by error", st.ByError)
	s.Title("Open, by age")
	rows = nil
	for _, b := range st.Ages {
		to := "and more"
		if b.To > 0 {
			to = "to " + shell.Span(b.To.String())
		}
		rows = append(rows, []string{shell.Span(b.From.String()) + " " + to, strconv.FormatInt(b.Letters, 10)})
	}
	s.Table([]screen.Column{{Name: "Age"}, {Name: "Letters", Right: true}}, rows)
	return s.Err()
}
