package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/audit"
)

// exportAnswer is the answer of receipts export.
type exportAnswer struct {
	Receipts int64  `json:"receipts"`
	File     string `json:"file"`
}

func receiptsExport(sh *shell.Shell) *cobra.Command {
	var options app.Options
	var tenant string
	var all bool
	cmd := &cobra.Command{
		Use: "export FILE", Short: "Write receipts to a file that can be verified without a database", Args: shell.Exactly("FILE"),
		Long: `Write every receipt of a tenant, or of all tenants, to a file: one JSON object a line, with
the exact bytes that were hashed. receipts verify --file verifies it without a database. The
file is replaced when all is written. "-" writes to standard output. The role of the database
URL needs USAGE on the schema recourse and SELECT on its tables, and nothing else.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			a := verifyFlags{tenant: tenant, all: all}
			if err := a.check(); err != nil {
				return shell.Usage(cmd, err)
			}
			return exportReceipts(cmd.Context(), sh, options, a.tenants(), args[0])
		},
	}
	f := cmd.Flags()
	options.BindReadOnly(f)
	f.StringVar(&tenant, "tenant", "", "tenant to act on (required without --all-tenants)")
	f.BoolVar(&all, "all-tenants", false, "all tenants, instead of --tenant")
	return cmd
}

func exportReceipts(ctx context.Context, sh *shell.Shell, o app.Options, tenants []string, name string) (err error) {
	db, err := openAudit(ctx, sh, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var n int64
	write := func(to io.Writer) (err error) {
		n, err = audit.WriteFile(ctx, db, tenants, to)
		return err
	}
	if name == "-" {
		sh.Answering()
		return write(sh.Out)
	}
	if err := shell.WriteFile(name, write); err != nil {
		return err
	}
	if sh.JSON {
		return sh.Answer(exportAnswer{n, name})
	}
	s := sh.Screen()
	s.Text("%s written to %s.", shell.Plural(int(n), "receipt"), name)
	return s.Err()
}
