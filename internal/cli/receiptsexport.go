package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/audit"
)

// exportAnswer is the answer of receipts export.
type exportAnswer struct {
	Receipts int64  `json:"receipts"`
	File     string `json:"file"`
	Heads    string `json:"heads,omitempty"` // file of the heads, if one is named
}

func receiptsExport(sh *shell.Shell) *cobra.Command {
	var flags verifyFlags
	cmd := &cobra.Command{
		Use: "export FILE", Short: "Write receipts to a file that can be verified without a database", Args: shell.Exactly("FILE"),
		Long: `Write every receipt of a tenant, or of all tenants, to a file: one JSON object a line, with
the exact bytes that were hashed. receipts verify --file verifies it without a database. A
file that exists is refused: it may be evidence. --force replaces it when all is written.
"-" writes to standard output. The role of the database URL needs USAGE on the schema
recourse and SELECT on its tables, and nothing else.

--case and --transaction write one case, and its head to FILE.heads, or to that of
--save-heads, which writes the head of each written case, as stored: give a reader both
files, for receipts verify --file FILE --heads HEADS.
Only heads that receipts verify --save-heads saved before, or that others keep, prove that
no end was removed until now.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.checkSelection(); err != nil {
				return shell.Usage(cmd, err)
			}
			if flags.singleCase() && flags.saveHeads == "" && args[0] != "-" {
				flags.saveHeads = args[0] + ".heads"
			}
			if err := errors.Join(shell.CheckNew(args[0], flags.force), shell.CheckNew(flags.saveHeads, flags.force)); err != nil {
				return err
			}
			return exportReceipts(cmd.Context(), sh, flags, args[0])
		},
	}
	flags.bindSelection(cmd.Flags())
	cmd.Flags().StringVar(&flags.saveHeads, "save-heads", "", "file to write the heads to, as stored (of one case, FILE.heads by default)")
	cmd.Flags().BoolVar(&flags.force, "force", false, "replace files that exist")
	return cmd
}

func exportReceipts(ctx context.Context, sh *shell.Shell, flags verifyFlags, name string) (err error) {
	db, err := openAudit(ctx, sh, flags.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	write := func(to io.Writer) (audit.Written, error) { return audit.WriteFile(ctx, db, flags.tenants(), to) }
	if flags.singleCase() {
		id, err := flags.selectedCase(ctx, db)
		if err != nil {
			return err
		}
		write = func(to io.Writer) (audit.Written, error) { return audit.WriteCase(ctx, db, flags.tenant, id, to) }
	}
	var written audit.Written
	writeTo := func(to io.Writer) (err error) {
		written, err = write(to)
		return err
	}
	if name == "-" {
		sh.Answering()
		err = writeTo(sh.Out)
	} else {
		err = shell.WriteFile(name, writeTo)
	}
	switch {
	case errors.Is(err, audit.ErrNotFound):
		return flags.caseNotFound()
	case err != nil:
		return err
	}
	if flags.saveHeads != "" {
		if err := writeHeads(flags.saveHeads, written.Heads); err != nil {
			return err
		}
	}
	if name == "-" {
		return nil
	}
	if sh.JSON {
		return sh.Answer(exportAnswer{written.Receipts, name, flags.saveHeads})
	}
	s := sh.Screen()
	s.Text("%s written to %s.", shell.Plural(int(written.Receipts), "receipt"), name)
	if flags.saveHeads != "" {
		s.Text("%s written to %s.", shell.Plural(len(written.Heads), "head"), flags.saveHeads)
	}
	return s.Err()
}
