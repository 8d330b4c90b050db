//go:build production

package cli

import (
	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/shell"
)

const demoHint = ""

// demoCommands returns nil: a production build has no demonstration.
func demoCommands(*shell.Shell) []*cobra.Command { return nil }
