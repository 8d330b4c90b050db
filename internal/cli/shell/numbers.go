package shell

import (
	"errors"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/settlement"
)

// numberForms are the types of the flags that take a number, with the form of each. pflag itself reads 010 as 8, and
// 0x10 and 1_6 as 16. A word such as "unlimited" is for the flag itself to judge.
var numberForms = map[string]*numberForm{
	"int": whole, "int64": whole, "float64": fraction, "number": {whole.says, regexp.MustCompile(`^(0|[1-9][0-9]*|[a-z]+)$`)},
}

var (
	whole    = &numberForm{"a whole number in decimal digits such as 12500, without sign, leading zeros and separators", regexp.MustCompile(`^(0|[1-9][0-9]*)$`)}
	fraction = &numberForm{"a decimal number such as 2 or 0.25", regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)}
)

// numberForm is how people write a number. It is also the error for a text that is written otherwise.
type numberForm struct {
	says    string
	pattern *regexp.Regexp
}

func (f *numberForm) Error() string { return "takes " + f.says }

// decimal is the value of a flag that takes a number. It refuses any text but plain decimal digits.
type decimal struct {
	pflag.Value
	form *numberForm
}

// Set returns an error for a text that is not in the form.
func (d decimal) Set(text string) error {
	if !d.form.pattern.MatchString(text) {
		return d.form
	}
	return d.Value.Set(text)
}

// DecimalFlags makes every flag of the command, and of the commands below it, that takes a number read plain decimal
// digits only.
func DecimalFlags(cmd *cobra.Command) {
	wrap := func(f *pflag.Flag) {
		if form := numberForms[f.Value.Type()]; form != nil {
			f.Value = decimal{f.Value, form}
		}
	}
	cmd.Flags().VisitAll(wrap)
	cmd.PersistentFlags().VisitAll(wrap)
	for _, below := range cmd.Commands() {
		DecimalFlags(below)
	}
}

// Optional is the value of a flag for a whole number that is nil unless the flag is given.
type Optional struct{ To **int64 }

func (o Optional) String() string {
	if o.To == nil || *o.To == nil {
		return ""
	}
	return strconv.FormatInt(**o.To, 10)
}

// Type returns the name of the value in usages.
func (o Optional) Type() string { return "number" }

// Set parses a whole number of at least 0.
func (o Optional) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return err
	}
	given := int64(n)
	*o.To = &given
	return nil
}

// Sum is a sum of money that a person gives by a flag, in major units with its currency, or by a second flag in minor
// units.
type Sum struct {
	name  string
	major settlement.Money
	minor *int64
}

// Bind defines --name and --name-minor. what says what the sum is.
func (s *Sum) Bind(f *pflag.FlagSet, name, what string) {
	s.name = name
	f.Var((*majorUnits)(&s.major), name, what+", with its currency, such as 125.00EUR")
	f.Var(Optional{&s.minor}, name+"-minor", "as --"+name+", in minor units, such as 12500")
}

// Given reports whether one of the flags was given.
func (s *Sum) Given() bool { return s.minor != nil || s.major.Minor != 0 }

// Read returns the sum. One in minor units has no currency.
func (s *Sum) Read() (settlement.Money, error) {
	switch {
	case s.minor == nil:
		return s.major, nil
	case s.major.Minor != 0:
		return settlement.Money{}, errors.New("--" + s.name + " and --" + s.name + "-minor exclude each other")
	}
	return settlement.Money{Minor: *s.minor}, nil
}

const sumType = "sum"

// majorUnits is the value of a flag for a sum of money with its currency.
type majorUnits settlement.Money

func (m *majorUnits) String() string {
	if *m == (majorUnits{}) {
		return ""
	}
	return settlement.Money(*m).String()
}

// Type returns the name of the value in usages.
func (m *majorUnits) Type() string { return sumType }

// Set parses a sum as settlement.ParseMoney does.
func (m *majorUnits) Set(text string) error {
	read, err := settlement.ParseMoney(text)
	var field *settlement.FieldError
	if errors.As(err, &field) {
		return errors.New(field.Problem)
	}
	*m = majorUnits(read)
	return err
}
