package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/audit"
)

func receiptsCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "receipts", Short: "List, verify and export receipts", Args: shell.UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(receiptsList(sh), receiptsVerify(sh), receiptsExport(sh))
	return cmd
}

// openAudit opens the database for an audit, after the options were filled from the environment.
// It opens no service: a role that may only SELECT is enough, and disabled triggers are no error.
func openAudit(ctx context.Context, sh *shell.Shell, o app.Options) (*audit.Database, error) {
	o.FromEnvironment(sh.Getenv)
	config, err := o.ReadOnlyConfig()
	if err != nil {
		return nil, err
	}
	return audit.Open(ctx, config.DatabaseURL)
}
