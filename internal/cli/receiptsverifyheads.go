package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/textfile"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/receipts"
)

// saveHeads writes the heads of an audit to a file, if one is named, nothing is broken, what protects
// evidence is in force, and there are receipts.
func saveHeads(sh *shell.Shell, name string, v verifyAnswer, report *audit.Report) error {
	switch {
	case name == "":
		return nil
	case !v.OK:
		sh.Note(name + " was not written: something is broken.")
		return nil
	case len(v.GuardsOff) > 0: // verify returns the error
		return nil
	case len(report.Heads) == 0:
		sh.Note(name + " was not written: there are no receipts.")
		return nil
	}
	return writeHeads(name, report.Heads)
}

// addHeadBreaks adds the breaks that a comparison of saved heads with those that are there now has found. With
// any, the answer is not OK.
func (v *verifyAnswer) addHeadBreaks(saved, there receipts.Heads, broken []audit.Break) {
	v.Compared, v.Invariants[audit.InvariantHeads], v.names = len(saved), "ok", append(v.names, audit.InvariantHeads)
	unsaved := 0
	for caseID := range there {
		if _, ok := saved[caseID]; !ok {
			unsaved++
		}
	}
	v.TrailsWithoutHead = &unsaved
	if len(broken) == 0 {
		return
	}
	v.OK, v.Invariants[audit.InvariantHeads] = false, broken[0].What
	v.TotalBreaks += len(broken)
	v.Breaks = append(v.Breaks, broken[:min(len(broken), audit.MaxBreaks)]...)
}

// loadHeads reads a file that writeHeads wrote, also as another program saved it. It returns nil if no file is named.
func loadHeads(sh *shell.Shell, name string) (receipts.Heads, error) {
	if name == "" {
		return nil, nil
	}
	from, err := sh.Open(name)
	if err != nil {
		return nil, err
	}
	defer from.Close() // only read from
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, shell.WithCode(shell.ExitUsage, fmt.Errorf("%s: %w", name, err))
	}
	var heads receipts.Heads
	if err := heads.UnmarshalText(textfile.Unix(text)); err != nil {
		return nil, shell.WithCode(shell.ExitUsage, fmt.Errorf("%s: %w", name, err))
	}
	if len(heads) == 0 {
		return nil, shell.WithCode(shell.ExitUsage, fmt.Errorf("%s has no heads to compare with", name))
	}
	return heads, nil
}

// checkHeads returns an error if at least one head was saved for another tenant than the verified one: its chain
// would look like a truncated one. Cases that were only moved since are left to CompareHeads.
func checkHeads(ctx context.Context, source audit.ReceiptReader, name, tenant string, heads receipts.Heads) error {
	cases, tenants, err := audit.HeadsOfOtherTenants(ctx, source, tenant, heads)
	if err != nil || cases == 0 {
		return err
	}
	return shell.WithCode(shell.ExitUsage, fmt.Errorf("%s has heads of %s of other tenants (%s): use --all-tenants", name, shell.Plural(cases, "case"), strings.Join(tenants, ", ")))
}

// writeHeads writes heads to a file, atomically (shell.WriteFile).
func writeHeads(name string, heads receipts.Heads) error {
	text, err := heads.MarshalText()
	if err != nil {
		return err
	}
	return shell.WriteFile(name, func(to io.Writer) error {
		_, err := to.Write(text)
		return err
	})
}
