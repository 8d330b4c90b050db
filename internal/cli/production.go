//go:build production

package cli

import (
	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/shell"
)

const demoLine = ""

// demos are none: what demonstrates is not in this program.
func demos(*shell.Shell) []*cobra.Command { return nil }
