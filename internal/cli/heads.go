package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/receipts"
)

func loadHeads(name string) (map[receipts.CaseID]receipts.Head, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, shell.WithCode(shell.ExitUsage, err)
	}
	heads, err := receipts.ParseHeads(text)
	if err != nil {
		return nil, shell.WithCode(shell.ExitUsage, fmt.Errorf("%s: %w", name, err))
	}
	if len(heads) == 0 {
		return nil, shell.WithCode(shell.ExitUsage, fmt.Errorf("%s has no heads to compare with", name))
	}
	return heads, nil
}

// checkHeads returns an error if heads belong to another tenant than the verified one: each
// would look like a truncated chain. It does not skip them, because a case moved to another
// tenant must be reported, which a comparison of all tenants does.
func checkHeads(ctx context.Context, source audit.Reader, name, tenant string, heads map[receipts.CaseID]receipts.Head) error {
	cases, tenants, err := audit.OthersHeads(ctx, source, tenant, heads)
	if err != nil || cases == 0 {
		return err
	}
	return shell.WithCode(shell.ExitUsage, fmt.Errorf("%s has heads of %s of other tenants (%s): use --all-tenants", name, shell.Plural(cases, "case"), strings.Join(tenants, ", ")))
}

// writeHeads writes heads to a file.
func writeHeads(name string, heads map[receipts.CaseID]receipts.Head) error {
	text, err := receipts.FormatHeads(heads)
	if err != nil {
		return err
	}
	return replaceFile(name, func(to io.Writer) error {
		_, err := to.Write(text)
		return err
	})
}

// replaceFile replaces a file atomically: a crash or an error leaves the old content.
func replaceFile(name string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
