//go:build production

package cli

import (
	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/shell"
)

const demoHint = ""

// demoCommands are none: what demonstrates is not in this program.
func demoCommands(*shell.Shell) []*cobra.Command { return nil }
