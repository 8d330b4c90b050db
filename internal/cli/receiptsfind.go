package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/receipts"
)

// receiptSelection selects receipts by what is in them, and where they are read.
type receiptSelection struct {
	subtype, since, until string
	file                  string // of receipts export, instead of a database
	filter                postadjudication.ReceiptFilter
}

func (s *receiptSelection) bind(f *pflag.FlagSet) {
	f.StringVar(&s.filter.Actor, "actor", "", "only what this actor did, such as user:ada")
	f.StringVar(&s.subtype, "subtype", "", "only receipts of this subtype, such as reconciled")
	f.StringVar(&s.since, "since", "", "only receipts written at this time or after, such as 2026-11-27 or 2026-11-27T15:04:05Z")
	f.StringVar(&s.until, "until", "", "only receipts written before this time")
	f.StringVar(&s.file, "file", "", "read this file of receipts export instead of a database")
}

// parse sets the filter.
func (s *receiptSelection) parse() error {
	s.filter.Subtype = receipts.Subtype(s.subtype)
	if s.subtype != "" && s.filter.Subtype.Source() == "" {
		return fmt.Errorf("--subtype %s is no subtype of a receipt", s.subtype)
	}
	if err := errors.Join(shell.ParseTime("--since", s.since, &s.filter.Since), shell.ParseTime("--until", s.until, &s.filter.Until)); err != nil {
		return err
	}
	if s.since != "" && s.until != "" && !s.filter.Since.Before(s.filter.Until) {
		return errors.New("--until is not after --since")
	}
	return nil
}

// given reports whether anything is selected.
func (s *receiptSelection) given() bool {
	return s.file != "" || s.filter != postadjudication.ReceiptFilter{}
}

// listFound writes the receipts of the tenant that the flags select.
func (l *receiptFlags) listFound(ctx context.Context, sh *shell.Shell, cases backend.Cases) error {
	page := postadjudication.ReceiptsFound{Next: l.after}
	var found []receipts.Receipt
	for len(found) < l.limit && !page.Complete {
		var err error
		if page, err = cases.FindReceipts(ctx, l.selection.filter, page.Next, min(receiptPageSize, l.limit-len(found))); err != nil {
			return err
		}
		found = append(found, page.Receipts...)
	}
	return writeFound(sh, found, !page.Complete, page.Next)
}

// listFile writes the receipts of a file that the flags select, in the order of the file.
func (l *receiptFlags) listFile(ctx context.Context, sh *shell.Shell) (err error) {
	file, err := audit.OpenFile(l.selection.file)
	if err != nil {
		return shell.WithCode(shell.ExitUsage, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	tenants, err := file.Tenants(ctx)
	if err != nil {
		return err
	}
	switch {
	case l.Tenant == "" && len(tenants) == 1:
		l.Tenant = tenants[0]
	case !slices.Contains(tenants, l.Tenant):
		return shell.WithCode(shell.ExitUsage, fmt.Errorf("name by --tenant one of the tenants of the file: %s", strings.Join(tenants, ", ")))
	}
	var found []receipts.Receipt
	for r, err := range file.Receipts(ctx, l.Tenant) {
		switch {
		case err != nil:
			return err
		case l.caseID != "" && r.Case.String() != l.caseID, l.run != "" && r.Run.String() != l.run, !l.selection.filter.Matches(r):
			continue
		case len(found) == l.limit:
			return writeFound(sh, found, true, 0)
		}
		found = append(found, r)
	}
	return writeFound(sh, found, false, 0)
}

// writeFound writes receipts of several cases. next continues the list; 0: nothing does.
func writeFound(sh *shell.Shell, found []receipts.Receipt, more bool, next int64) error {
	if sh.JSON {
		return sh.Answer(receiptsAnswer{Receipts: asJSON(found), More: more, Next: next})
	}
	s := sh.Screen()
	if err := showReceipts(s, receiptColumns(true), "", found, false); err != nil {
		return err
	}
	switch {
	case more && next > 0:
		s.Text("There are more: --after %d", next)
	case more:
		s.Text("There are more: raise --limit, or select fewer")
	}
	return s.Err()
}
