package dlq

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

func export(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var letters letterFlags
	var format, where string
	var excel bool
	formats := make([]string, len(deadletter.Formats))
	for i, f := range deadletter.Formats {
		formats[i] = string(f)
	}
	cmd := &cobra.Command{
		Use: "export FILE", Short: "Export dead letters to a file, oldest first", Args: shell.Exactly("FILE"),
		Long: `Export the dead letters that a filter selects to a file, or to standard output (-), oldest
first. The file is written completely or not at all. Without --format the extension of the
file decides the format; the default is JSON. CSV cells are safe to open in a spreadsheet. With
--excel a spreadsheet also keeps ids, times and long numbers as they are; programs read CSV without it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := letters.read()
			if excel {
				format = string(deadletter.Excel)
			}
			if format == "" {
				format = formatOf(args[0], formats)
			}
			err = errors.Join(err, shell.OneOf("--format", format, formats...))
			if args[0] == "-" && sh.JSON {
				err = errors.Join(err, errors.New("--json and - exclude each other: standard output holds the letters"))
			}
			err = errors.Join(err, checkWhere(cmd, where))
			if err != nil {
				return shell.Usage(cmd, err)
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				var done deadletter.Exported
				write := func(out io.Writer) (err error) {
					done, err = be.DeadLetters.Export(ctx, filter, where, deadletter.Format(format), out)
					return err
				}
				if args[0] == "-" {
					return write(sh.Out)
				}
				if err := shell.WriteFile(args[0], write); err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(done)
				}
				s := sh.Screen()
				s.Text("%s written to %s.%s", shell.Plural(done.Letters, "letter"), args[0], view.LeftOut(done.Undecided))
				return s.Err()
			})
		},
	}
	f := cmd.Flags()
	o.Bind(f)
	letters.bind(f)
	f.StringVar(&format, "format", "", "format: "+strings.Join(formats, ", "))
	f.BoolVar(&excel, "excel", false, "--format excel: CSV for a spreadsheet")
	cmd.MarkFlagsMutuallyExclusive("format", "excel")
	whereFlag(f, &where)
	return cmd
}

// formatOf returns the format of a file's extension, or JSON.
func formatOf(name string, formats []string) string {
	ending := strings.TrimPrefix(filepath.Ext(name), ".")
	if shell.OneOf("", ending, formats...) == nil && ending != "" {
		return ending
	}
	return string(deadletter.JSON)
}

// whereFlag defines the flag of the CEL condition.
func whereFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "filter", "", `CEL condition on the members in the --json output, such as 'amount.minor > 100000 && error.type.startsWith("Conn")'`)
}

// checkWhere returns an error for a condition that is invalid, or empty, which would select everything.
func checkWhere(cmd *cobra.Command, where string) error {
	if where == "" && cmd.Flags().Changed("filter") {
		return errors.New("--filter is empty; leave it out")
	}
	if where == "" {
		return nil
	}
	_, err := deadletter.ParseCondition(where)
	var field *refusal.FieldError
	if errors.As(err, &field) {
		field.Field = "--filter:"
		for _, sum := range []string{"amount", "at_risk"} {
			if strings.HasSuffix(field.Problem, "undeclared reference to '"+sum+"'") {
				field.Problem += " (did you mean " + sum + ".minor?)"
			}
		}
	}
	return err
}
