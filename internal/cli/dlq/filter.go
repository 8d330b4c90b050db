package dlq

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// letterFlags are the flags that select letters.
type letterFlags struct {
	status, class, outcome, since, until string
	amounts                              [2]shell.Sum // minimum, maximum
	held, eligible, review               string
	days                                 *int64
	defined                              *pflag.FlagSet
	queueFlag                            string // name of the flag for Queue; "queue" by default
	filter                               deadletter.Filter
}

// bind defines the flags, except some whose names the command uses otherwise.
func (l *letterFlags) bind(to *pflag.FlagSet, except ...string) {
	f := pflag.NewFlagSet("letters", pflag.ContinueOnError)
	defer f.VisitAll(func(one *pflag.Flag) {
		if !slices.Contains(except, one.Name) {
			to.AddFlag(one)
		}
	})
	if l.defined = f; l.queueFlag == "" {
		l.queueFlag = "queue"
	}
	f.StringVar(&l.status, "status", "open", "only letters with this status: open, forked, reconciled or superseded; empty for all")
	f.StringVar(&l.filter.Family, "family", "", "only letters of this family, such as settlement (also --workflow-id)")
	f.StringVar(&l.filter.Queue, l.queueFlag, "", "only letters of this queue, such as settlement:0")
	f.StringVar(&l.filter.JobType, "type", "", "only letters of this job type; for settlements it is the name of the family")
	f.StringVar(&l.outcome, "outcome", "", "only letters with this outcome: release or refund")
	f.StringVar(&l.filter.ReasonCode, "reason-code", "", "only letters that died for this reason, such as final or retry_exhausted")
	f.StringVar(&l.class, "class", "", "only letters of this outcome class: executed, not_executed or unknown")
	f.StringVar(&l.filter.ErrorType, "error-type", "", "only letters whose last failure has this type, such as http.refused")
	f.StringVar(&l.filter.ErrorText, "error-text", "", "only letters whose last failure's message contains this text")
	f.StringVar(&l.filter.Signature, "signature", "", "only letters of the cause with this signature, as --json shows it")
	f.StringVar(&l.since, "since", "", "only letters that died at or after this time, such as 2026-11-27T15:04:05Z, or 2026-11-27 for its midnight UTC")
	f.StringVar(&l.until, "until", "", "only letters that died before this time, in the same form")
	f.Var(&l.filter.OlderThan, "older-than", "only letters that died at least this long ago, such as 36h or 30d")
	f.Var(shell.Optional{To: &l.days}, "older-than-days", "as --older-than, in days")
	f.Var(&l.filter.YoungerThan, "younger-than", "only letters that died less than this long ago, such as 36h or 30d")
	for _, r := range []struct {
		name        string
		least, most **int64
	}{{"attempts", &l.filter.MinAttempts, &l.filter.MaxAttempts}, {"replays", &l.filter.MinReplays, &l.filter.MaxReplays}} {
		f.Var(shell.Optional{To: r.least}, "min-"+r.name, "only letters with at least this many "+r.name)
		f.Var(shell.Optional{To: r.most}, "max-"+r.name, "only letters with at most this many "+r.name)
	}
	l.amounts[0].Bind(f, "min-amount", "only letters with at least this adjudicated amount")
	l.amounts[1].Bind(f, "max-amount", "only letters with at most this adjudicated amount")
	f.StringVar(&l.filter.Currency, "currency", "", "only letters in this currency, such as EUR")
	f.StringVar(&l.filter.Transaction, "transaction", "", "only the letters of this transaction receipt id, or of the job or task with this id (also --job-id)")
	f.StringVar(&l.filter.Submission, "submission", "", "only the letters of this submission receipt id")
	f.StringVar(&l.filter.Escrow, "escrow", "", "only letters of this escrow reference")
	f.StringVar(&l.filter.Dispatch, "dispatch", "", "only the letter with this asynq task id (RUN.N), dispatch_reference in receipts")
	f.StringVar(&l.filter.ReplayedBy, "replayed-by", "", "only letters last replayed by this actor")
	triStateFlag(f, &l.held, "held", "only held letters", others)
	triStateFlag(f, &l.eligible, "eligible", "only letters worth a retry by itself, by their mark or else by their cause of death", others)
	triStateFlag(f, &l.review, "review", "only letters that need review by a person, by their mark or else by their cause of death", others)
	f.Var(&l.filter.ExpiringWithin, "expiring-within", "only letters that retention removes within this time, such as 7d")
	for _, span := range []string{"older-than", "younger-than", "expiring-within"} {
		f.Lookup(span).DefValue = "" // a default of 0s would read as if it selected by age
	}
}

// read returns the filter. An invalid value is an error and never an absent filter.
func (l *letterFlags) read() (deadletter.Filter, error) {
	out := l.filter
	errs := []error{
		l.readAgeInDays(&out.OlderThan),
		shell.ParseTime("--since", l.since, &out.From), shell.ParseTime("--until", l.until, &out.To),
		parseChoice("--status", l.status, &out.Status, "open", "forked", "reconciled", "superseded"),
		parseChoice("--class", l.class, &out.Class, "executed", "not_executed", "unknown"),
		parseChoice("--outcome", l.outcome, &out.Outcome, "release", "refund"),
		parseTriState("--held", l.held, &out.Held), parseTriState("--eligible", l.eligible, &out.Reprocess), parseTriState("--review", l.review, &out.Review),
	}
	errs = append(errs, readAmount(&l.amounts[0], &out.MinAmount, &out.Currency), readAmount(&l.amounts[1], &out.MaxAmount, &out.Currency))
	l.defined.VisitAll(func(f *pflag.Flag) {
		if value := f.Value.String(); f.Changed && f.Name != "status" && (value == "" || value == "0s") {
			errs = append(errs, errors.New("--"+f.Name+" is empty; leave it out"))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return out, err // these errors name the flags; Validate checks the values
	}
	return out, l.nameFlags(out.Validate())
}

// nameFlags replaces the members of a filter in an error by their flags.
func (l *letterFlags) nameFlags(err error) error {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		for _, one := range several.Unwrap() {
			_ = l.nameFlags(one) // it is changed in place
		}
		return err
	}
	var field *refusal.FieldError
	if !errors.As(err, &field) {
		return err
	}
	flag := func(member string) string {
		name := view.FlagOf(member)
		if name == "queue" {
			name = l.queueFlag
		}
		if l.defined.Lookup(name) == nil {
			return member
		}
		return "--" + name
	}
	if start, member, found := cutLast(field.Problem, " "); found && strings.Contains(member, "_") { // as in "must be later than died_from"
		field.Problem = start + " " + flag(member)
	}
	field.Field = flag(field.Field)
	return err
}

// cutLast is strings.Cut at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}

// readAgeInDays reads --older-than-days.
func (l *letterFlags) readAgeInDays(to *deadletter.Duration) error {
	switch {
	case l.days == nil:
		return nil
	case l.defined.Changed("older-than"):
		return errors.New("--older-than-days and --older-than exclude each other")
	case *l.days == 0:
		return errors.New("--older-than-days is 0; leave it out")
	}
	span, err := deadletter.ParseDuration(strconv.FormatInt(*l.days, 10) + "d")
	if err != nil {
		return fmt.Errorf("--older-than-days: %w", err)
	}
	*to = span
	return nil
}

// readAmount reads a limit of the amount. One with a currency selects only letters in that currency.
func readAmount(from *shell.Sum, to **int64, currency *string) error {
	sum, err := from.Read()
	switch {
	case err != nil || !from.Given():
		return err
	case sum.Currency != "" && *currency != "" && sum.Currency != *currency:
		return fmt.Errorf("%s is not in %s, the other currency that was given", sum, *currency)
	}
	*to, *currency = &sum.Minor, cmp.Or(sum.Currency, *currency)
	return nil
}

func parseChoice[T ~string](name, value string, to *T, words ...string) error {
	*to = T(value)
	return shell.OneOf(name, value, words...)
}

// others describes what =false selects.
const others = "only the others"

// triStateFlag defines a flag that is unset, true (also without a value), or false.
func triStateFlag(f *pflag.FlagSet, to *string, name, what, no string) {
	f.StringVar(to, name, "", what+"; =false: "+no)
	f.Lookup(name).NoOptDefVal = "true"
}

func parseTriState(name, text string, to **bool) error {
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
