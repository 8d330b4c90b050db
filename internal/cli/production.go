//go:build production

package cli

import "github.com/spf13/cobra"

const demoLine = ""

// demos are none: what demonstrates is not in this program.
func (c *command) demos() []*cobra.Command { return nil }
