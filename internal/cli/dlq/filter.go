package dlq

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

// letterFlags are the flags that select letters.
type letterFlags struct {
	status, class, outcome, since, until string
	attempts, amounts, replays           [2]string // least, most
	held, eligible, review, days         string
	defined                              *pflag.FlagSet
	queueFlag                            string // queue, unless the command has another use for that
	filter                               postadjudication.LetterFilter
}

// bind defines the flags, but for some that mean something else to the command.
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
	f.StringVar(&l.status, "status", "open", "open, forked, reconciled or superseded; empty for all")
	f.StringVar(&l.filter.Family, "family", "", "family, such as settlement")
	f.StringVar(&l.filter.Queue, l.queueFlag, "", "queue, such as settlement:0")
	f.StringVar(&l.filter.JobType, "type", "", "job type; the family's name for settlements")
	f.StringVar(&l.outcome, "outcome", "", "release or refund")
	f.StringVar(&l.filter.ReasonCode, "reason-code", "", "reason code of the death, such as final or retry_exhausted")
	f.StringVar(&l.class, "class", "", "executed, not_executed or unknown")
	f.StringVar(&l.filter.ErrorType, "error-type", "", "type of the last failure, such as http.refused")
	f.StringVar(&l.filter.ErrorText, "error-text", "", "text within the last failure's message")
	f.StringVar(&l.filter.Signature, "signature", "", "what letters of one cause share, as --json shows it")
	f.StringVar(&l.since, "since", "", "died at or after this time, RFC 3339")
	f.StringVar(&l.until, "until", "", "died before this time, RFC 3339")
	f.Var(&l.filter.OlderThan, "older-than", "died at least so long ago, such as 36h or 30d")
	f.StringVar(&l.days, "older-than-days", "", "the same, in days")
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
	triStateFlag(f, &l.held, "held", "only held letters", others)
	triStateFlag(f, &l.eligible, "eligible", "only letters that are worth another try, as marked or as they died", others)
	triStateFlag(f, &l.review, "review", "only letters that a person should look at first, as marked or as they died", others)
	f.Var(&l.filter.ExpiringWithin, "expiring-within", "let go by retention within this time, such as 7d")
	for _, span := range []string{"older-than", "younger-than", "expiring-within"} {
		f.Lookup(span).DefValue = "" // no span selects nothing by age, which 0s would not say
	}
}

// read gives the filter. A word that can't be meant is a mistake, never no filter.
func (l *letterFlags) read() (postadjudication.LetterFilter, error) {
	out := l.filter
	errs := []error{
		l.readAgeInDays(&out.OlderThan),
		shell.ParseTime("--since", l.since, &out.From), shell.ParseTime("--until", l.until, &out.To),
		parseChoice("--status", l.status, &out.Status, "open", "forked", "reconciled", "superseded"),
		parseChoice("--class", l.class, &out.Class, "executed", "not_executed", "unknown"),
		parseChoice("--outcome", l.outcome, &out.Outcome, "release", "refund"),
		parseTriState("--held", l.held, &out.Held), parseTriState("--eligible", l.eligible, &out.Reprocess), parseTriState("--review", l.review, &out.Review),
	}
	for _, r := range []struct {
		name        string
		text        [2]string
		least, most **int64
	}{
		{"attempts", l.attempts, &out.MinAttempts, &out.MaxAttempts}, {"amount", l.amounts, &out.MinAmount, &out.MaxAmount}, {"replays", l.replays, &out.MinReplays, &out.MaxReplays},
	} {
		errs = append(errs, parseNumber("--min-"+r.name, r.text[0], r.least), parseNumber("--max-"+r.name, r.text[1], r.most))
	}
	l.defined.VisitAll(func(f *pflag.Flag) {
		if said := f.Value.String(); f.Changed && f.Name != "status" && (said == "" || said == "0s") {
			errs = append(errs, errors.New("--"+f.Name+" says nothing; leave it out"))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return out, err // in the flags' own names; what they mean is checked once they are read
	}
	return out, out.Validate()
}

// readAgeInDays reads the age that is given in days.
func (l *letterFlags) readAgeInDays(to *postadjudication.Duration) error {
	var days *int64
	switch err := parseNumber("--older-than-days", l.days, &days); {
	case err != nil || days == nil:
		return err
	case l.defined.Changed("older-than"):
		return errors.New("--older-than-days and --older-than exclude each other")
	case *days == 0:
		return errors.New("--older-than-days says nothing; leave it out")
	}
	span, err := postadjudication.ParseDuration(l.days + "d")
	if err != nil {
		return fmt.Errorf("--older-than-days: %w", err)
	}
	*to = span
	return nil
}

func parseChoice[T ~string](name, value string, to *T, words ...string) error {
	*to = T(value)
	return shell.OneOf(name, value, words...)
}

// others says what =false selects.
const others = "only the others"

// triStateFlag defines a flag that says yes by itself, and no or yes by =false or =true.
func triStateFlag(f *pflag.FlagSet, to *string, name, what, no string) {
	f.StringVar(to, name, "", what+"; with =false "+no)
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

func parseNumber(name, text string, to **int64) error {
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
