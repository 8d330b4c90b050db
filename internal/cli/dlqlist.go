package cli

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
)

// letterFlags are the flags that select letters.
type letterFlags struct {
	standing, class, outcome, since, until string
	attempts, amounts, replays             [2]string // least, most
	held, eligible, review                 string
	own                                    *pflag.FlagSet
	filter                                 postadjudication.LetterFilter
}

func (l *letterFlags) bind(to *pflag.FlagSet) {
	f := pflag.NewFlagSet("letters", pflag.ContinueOnError)
	defer to.AddFlagSet(f)
	l.own = f
	f.StringVar(&l.standing, "standing", "open", "open, forked, reconciled or superseded; empty for all")
	f.StringVar(&l.filter.Family, "family", "", "family, such as settlement")
	f.StringVar(&l.filter.Queue, "queue", "", "queue, such as settlement:0")
	f.StringVar(&l.filter.JobType, "type", "", "job type; the family's name for settlements")
	f.StringVar(&l.outcome, "outcome", "", "release or refund")
	f.StringVar(&l.filter.ReasonCode, "reason", "", "reason code of the death, such as final or retry_exhausted")
	f.StringVar(&l.class, "class", "", "executed, not_executed or unknown")
	f.StringVar(&l.filter.ErrorType, "error-type", "", "type of the last failure, such as http.refused")
	f.StringVar(&l.filter.ErrorText, "error-text", "", "text within the last failure's message")
	f.StringVar(&l.filter.Signature, "signature", "", "what letters of one cause share, as --json shows it")
	f.StringVar(&l.since, "since", "", "died at or after this time, RFC 3339")
	f.StringVar(&l.until, "until", "", "died before this time, RFC 3339")
	f.Var(&l.filter.OlderThan, "older-than", "died at least so long ago, such as 36h or 30d")
	f.Var(&l.filter.YoungerThan, "younger-than", "died less long ago")
	for _, r := range []struct {
		name, what string
		to         *[2]string
	}{
		{"attempts", "attempts", &l.attempts}, {"amount", "minor units that were adjudicated", &l.amounts}, {"replays", "times it was tried again", &l.replays},
	} {
		f.StringVar(&r.to[0], "min-"+r.name, "", "at least so many "+r.what)
		f.StringVar(&r.to[1], "max-"+r.name, "", "at most so many "+r.what)
	}
	f.StringVar(&l.filter.Currency, "currency", "", "currency, such as EUR")
	f.StringVar(&l.filter.Transaction, "transaction", "", "transaction receipt id")
	f.StringVar(&l.filter.Submission, "submission", "", "submission receipt id")
	f.StringVar(&l.filter.Escrow, "escrow", "", "escrow reference")
	f.StringVar(&l.filter.Dispatch, "dispatch", "", "dispatch reference, as receipts show it")
	f.StringVar(&l.filter.ReplayedBy, "replayed-by", "", "who tried it again last")
	f.StringVar(&l.held, "held", "", "true or false")
	f.StringVar(&l.eligible, "eligible", "", "marked for another try, or so by its class: true or false")
	f.StringVar(&l.review, "review", "", "marked for a person to look at, or so by its class: true or false")
	f.Var(&l.filter.ExpiringWithin, "expiring-within", "let go by retention within this time, such as 7d")
}

// read gives the filter. A word that can't be meant is a mistake, never no filter.
func (l *letterFlags) read() (postadjudication.LetterFilter, error) {
	out := l.filter
	errs := []error{
		instant("--since", l.since, &out.From), instant("--until", l.until, &out.To),
		choice("--standing", l.standing, &out.Standing, "open", "forked", "reconciled", "superseded"),
		choice("--class", l.class, &out.Class, "executed", "not_executed", "unknown"),
		choice("--outcome", l.outcome, &out.Outcome, "release", "refund"),
		flag("--held", l.held, &out.Held), flag("--eligible", l.eligible, &out.Reprocess), flag("--review", l.review, &out.Review),
	}
	for _, r := range []struct {
		name        string
		text        [2]string
		least, most **int64
	}{
		{"attempts", l.attempts, &out.MinAttempts, &out.MaxAttempts}, {"amount", l.amounts, &out.MinAmount, &out.MaxAmount}, {"replays", l.replays, &out.MinReplays, &out.MaxReplays},
	} {
		errs = append(errs, number("--min-"+r.name, r.text[0], r.least), number("--max-"+r.name, r.text[1], r.most))
	}
	l.own.VisitAll(func(f *pflag.Flag) {
		if said := f.Value.String(); f.Changed && f.Name != "standing" && (said == "" || said == "0s") {
			errs = append(errs, errors.New("--"+f.Name+" says nothing; leave it out"))
		}
	})
	return out, errors.Join(append(errs, out.Validate())...)
}

func choice[T ~string](name, value string, to *T, words ...string) error {
	*to = T(value)
	return oneOf(name, value, words...)
}

func flag(name, text string, to **bool) error {
	if text == "" {
		return nil
	}
	if text != "true" && text != "false" {
		return errors.New(name + " must be true or false")
	}
	yes := text == "true"
	*to = &yes
	return nil
}

func number(name, text string, to **int64) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return errors.New(name + " must be a whole number of at least 0")
	}
	*to = &n
	return nil
}

func (c *command) dlqList() *cobra.Command {
	var o app.Options
	var tenant, sort, after string
	var letters letterFlags
	var limit int
	names := make([]string, len(postadjudication.LetterSorts))
	for i, s := range postadjudication.LetterSorts {
		names[i] = string(s)
	}
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, the newest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := needTenant(cmd, tenant); err != nil {
				return err
			}
			filter, err := letters.read()
			if err := errors.Join(err, oneOf("--sort", sort, names...)); err != nil {
				return usage(cmd, err)
			}
			service, err := c.open(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			page, err := service.Letters(cmd.Context(), tenant, postadjudication.LetterQuery{
				Filter: filter, Sort: postadjudication.LetterSort(sort), After: after, Limit: limit})
			if err != nil {
				return err
			}
			out := map[string]any{"letters": page.Letters, "next": page.Next, "more": page.More}
			total := "more"
			if filter.ErrorText == "" { // to count those, every message may have to be read
				count, err := service.CountLetters(cmd.Context(), tenant, filter)
				if err != nil {
					return err
				}
				out["total"], total = count.Total, strconv.FormatInt(count.Total, 10)
			}
			if c.json {
				return c.answer(out)
			}
			return showLetters(screen.New(c.Out), page, total)
		},
	}
	f := cmd.Flags()
	o.BindServers(f)
	tenantFlag(f, &tenant)
	letters.bind(f)
	f.StringVar(&sort, "sort", names[0], strings.Join(names, ", "))
	f.StringVar(&after, "after", "", "go on behind a page: its next, as --json shows it")
	f.IntVar(&limit, "limit", 50, "at most this many, 1 to 1000")
	return cmd
}

func showLetters(s *screen.Screen, page postadjudication.LetterPage, total string) error {
	if len(page.Letters) == 0 {
		s.Text("No dead letters.")
		return s.Err()
	}
	rows := make([][]string, len(page.Letters))
	for i, l := range page.Letters {
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
		if l.Held {
			may += ", held"
		}
		rows[i] = []string{l.DeadAt.Format("2006-01-02 15:04:05"), l.Run.String(), l.Transaction, string(l.Outcome), risk, why, string(l.Class), may}
	}
	s.Table([]screen.Column{{Name: "Died"}, {Name: "Run"}, {Name: "Transaction", Spare: true}, {Name: "Outcome", Spare: true}, {Name: "At risk", Right: true},
		{Name: "Why", Wraps: true}, {Name: "Known"}, {Name: "Now"}}, rows)
	if page.More {
		s.Text("%d of %s: narrow the filter or raise --limit.", len(page.Letters), total)
	}
	return s.Err()
}
