package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// withoutServer has the commands that take no --server, each with the reason. Its help says it.
var withoutServer = map[string]string{
	"serve":           "it is the server",
	"demo":            "it starts its own server",
	"migrate":         "it changes the schema as its owner, which no server connects as",
	"doctor":          "it checks the connections of this machine",
	"receipts verify": "a server could hide what it is asked to prove",
	"receipts export": "a server could hide what is to be verified",
	"dlq rebuild":     "it repairs the list that servers read",
}

// addReasons adds to the help of each command without --server why it has none.
func addReasons(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		addReasons(sub)
	}
	path := strings.TrimPrefix(cmd.CommandPath(), "recourse ")
	reason, listed := withoutServer[path]
	if !listed {
		return
	}
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	cmd.Long = text + "\n\nThis command takes no --server: " + reason + "."
}
