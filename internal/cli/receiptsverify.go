package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// verifyAnswer is the answer of receipts verify.
type verifyAnswer struct {
	OK                bool              `json:"ok"`
	Cases             int               `json:"cases"`
	Runs              int               `json:"runs"`
	Receipts          int64             `json:"receipts"`
	Chains            int               `json:"chains_verified"`
	Compared          int               `json:"heads_compared"`
	TrailsWithoutHead *int              `json:"trails_without_head,omitempty"` // with --heads
	Invariants        map[string]string `json:"invariants"`                    // name -> "ok", why it was not checked, or its first break
	Breaks            []audit.Break     `json:"breaks"`
	TotalBreaks       int               `json:"breaks_in_all"` // includes breaks that are not listed

	OnePerson []string `json:"people_1,omitempty"` // tenants with people: 1

	// TriggersOff names the disabled triggers. It is a warning: a data-only restore disables them, too.
	TriggersOff []string `json:"triggers_off,omitempty"`

	Archive *audit.Archived `json:"archive,omitempty"` // with --archive
}

// verifyFlags select what is checked.
type verifyFlags struct {
	options             app.Options
	tenant              string
	all                 bool
	caseID, transaction string // one case
	heads, saveHeads    string
	archive             string
	file                string // receipts, instead of a database
	maxRecoveries       app.Recoveries
}

func receiptsVerify(sh *shell.Shell) *cobra.Command {
	var a verifyFlags
	cmd := &cobra.Command{
		Use: "verify", Short: "Verify every chain, and the stored state against the receipts", Args: shell.Exactly(),
		Long: `Verify every chain of receipts, compare the stored state with the receipts, and list all
breaks. A chain whose end was removed still verifies by itself: store its head elsewhere
with --save-heads, and compare later with --heads. Heads saved for all tenants must be
compared with --all-tenants. --case and --transaction verify one case: its chain, its
state, its escrow's sums and its row in the list of dead letters, but not the order of
events. Exit code 1 means that something is broken, or that a disabled trigger kept
--save-heads from writing its file.

The role of the database URL needs USAGE on the schema recourse and SELECT on its tables, and
nothing else; a standby will do. --file verifies a file that receipts export wrote, without a
database: each chain, and that each receipt may follow those before it. What only a comparison
with the stored state can show is listed as not checked.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.check(); err != nil {
				return shell.Usage(cmd, err)
			}
			return verify(cmd.Context(), sh, a)
		},
	}
	f := cmd.Flags()
	a.options.BindReadOnly(f)
	f.StringVar(&a.tenant, "tenant", "", "tenant to act on (required without --all-tenants)")
	f.BoolVar(&a.all, "all-tenants", false, "all tenants, instead of --tenant")
	f.StringVar(&a.caseID, "case", "", "only this case, by its id")
	f.StringVar(&a.transaction, "transaction", "", "only the case of this transaction receipt id")
	f.StringVar(&a.heads, "heads", "", "file written by --save-heads, for the same tenant or for all: reports chains whose end is missing")
	f.StringVar(&a.saveHeads, "save-heads", "", "file to write the heads to, if nothing is broken")
	f.StringVar(&a.archive, "archive", "", "directory of the archive of dead letters: verify each file that a receipt names (with --case, a receipt of that case)")
	f.StringVar(&a.file, "file", "", "verify this file of receipts export instead of a database")
	f.Var(&a.maxRecoveries, "max-recoveries", `how many lost workers a run may have, as serve --max-recoveries says: a number, or "unlimited"`)
	return cmd
}

// tenants returns the tenants to check; nil means all.
func (a *verifyFlags) tenants() []string {
	if a.all {
		return nil
	}
	return []string{a.tenant}
}

// singleCase reports whether a single case is to be checked.
func (a *verifyFlags) singleCase() bool { return a.caseID != "" || a.transaction != "" }

// check returns an error for flags that exclude or lack each other.
func (a *verifyFlags) check() error {
	switch {
	case a.tenant == "" && !a.all:
		return errors.New("--tenant is missing (or say --all-tenants)")
	case a.tenant != "" && a.all:
		return errors.New("--tenant and --all-tenants exclude each other")
	case a.caseID != "" && a.transaction != "":
		return errors.New("name the case by one of --case and --transaction")
	case a.singleCase() && a.all:
		return errors.New("--case and --transaction need --tenant, not --all-tenants")
	case a.file != "" && a.transaction != "":
		return errors.New("--transaction needs a database: with --file, name the case by --case")
	case a.singleCase() && a.saveHeads != "":
		return errors.New("--save-heads saves the heads of all cases: leave out --case and --transaction")
	}
	return nil
}

// open opens the database or the file to verify. db is nil for a file.
func (a *verifyFlags) open(ctx context.Context, sh *shell.Shell) (source audit.ReceiptReader, db *audit.Database, end func() error, err error) {
	if a.file != "" {
		f, err := audit.OpenFile(a.file)
		if err != nil {
			return nil, nil, nil, shell.WithCode(shell.ExitUsage, err)
		}
		return f, nil, f.Close, nil
	}
	if db, err = openAudit(ctx, sh, a.options); err != nil {
		return nil, nil, nil, err
	}
	return db, db, db.Close, nil
}

// verify audits what the flags select, compares saved heads, and writes the answer. It returns an
// error if anything is broken, or if there are no receipts.
func verify(ctx context.Context, sh *shell.Shell, a verifyFlags) (err error) {
	saved, err := loadHeads(a.heads)
	if err != nil {
		return err
	}
	source, db, end, err := a.open(ctx, sh)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if a.heads != "" && !a.all && !a.singleCase() {
		if err := checkHeads(ctx, source, a.heads, a.tenant, saved); err != nil {
			return err
		}
	}
	report, err := runAudit(ctx, sh, source, db, a, saved)
	if err != nil {
		return err
	}
	v, names, err := a.answer(ctx, source, db, report, saved)
	if err != nil {
		return err
	}
	nothing := report.Receipts == 0 && (!a.all || a.file != "") && v.OK
	v.OK = v.OK && !nothing // a tenant whose rows were all removed has no receipts, either
	if err := saveHeads(sh, a.saveHeads, v, report); err != nil {
		return err
	}
	if sh.JSON {
		err = sh.Answer(v)
	} else {
		err = v.show(sh.Screen(), names)
	}
	switch {
	case err == nil && v.OK && a.saveHeads != "" && len(v.TriggersOff) > 0:
		return fmt.Errorf("%s was not written: triggers are disabled", a.saveHeads)
	case err != nil || v.OK:
		return err
	case nothing && a.file != "":
		return fmt.Errorf("%s has no receipts: it is empty, or has none of that tenant", a.file)
	case nothing:
		return fmt.Errorf("tenant %s has no receipts: check its name", a.tenant)
	}
	return errInvariantBroken
}

// answer returns what was found, and the names of the invariants in the order to show them.
func (a *verifyFlags) answer(ctx context.Context, source audit.ReceiptReader, db *audit.Database, report *audit.Report, saved receipts.Heads) (v verifyAnswer, names []string, err error) {
	v = verifyAnswer{OK: report.OK(), Cases: report.Cases, Runs: report.Runs, Receipts: report.Receipts, Chains: report.Chains,
		Invariants: map[string]string{}, Breaks: report.Breaks, TotalBreaks: report.TotalBreaks, Archive: report.Archive}
	if db != nil {
		if v.OnePerson, err = onePerson(ctx, db, a.tenants()); err != nil {
			return v, nil, err
		}
		if v.TriggersOff, err = db.TriggersOff(ctx); err != nil {
			return v, nil, err
		}
	}
	names = slices.Clone(audit.Invariants)
	if v.Archive != nil {
		names = append(names, audit.InvariantArchive)
	}
	for _, name := range names {
		v.Invariants[name] = report.Verdict(name)
	}
	if a.heads != "" {
		broken, err := audit.CompareHeads(ctx, source, saved, report)
		if err != nil {
			return v, nil, err
		}
		for i := range broken {
			broken[i].Tenant = cmp.Or(broken[i].Tenant, a.tenant)
		}
		v.addHeadBreaks(saved, report.Heads, broken)
		names = append(names, audit.InvariantHeads)
	}
	return v, names, nil
}

// runAudit checks what the flags select. For one case it removes all other cases from saved.
func runAudit(ctx context.Context, sh *shell.Shell, source audit.ReceiptReader, db *audit.Database, a verifyFlags, saved receipts.Heads) (_ *audit.Report, err error) {
	q := audit.Query{Tenants: a.tenants(), MaxRecoveries: int(a.maxRecoveries)}
	if a.archive != "" {
		if q.Archive, err = audit.OpenArchive(a.archive); err != nil {
			return nil, shell.WithCode(shell.ExitUsage, err)
		}
	}
	if a.singleCase() {
		if q.Case, err = a.selectedCase(ctx, db); err != nil {
			return nil, err
		}
		if head, ok := saved[q.Case]; a.heads != "" {
			if !ok {
				return nil, shell.WithCode(shell.ExitUsage, fmt.Errorf("%s has no head of case %s to compare with", a.heads, q.Case))
			}
			clear(saved)
			saved[q.Case] = head
		}
		report, err := audit.Run(ctx, source, q)
		switch {
		case !errors.Is(err, audit.ErrNotFound):
			return report, err
		case a.heads != "": // the head was saved: CompareHeads reports the missing case
			return audit.Empty(source), nil
		}
		return nil, a.caseNotFound()
	}
	bar := &screen.Stages{}
	if !sh.JSON {
		bar = screen.NewStages(sh.Err)
		q.Progress = bar.At
	}
	report, err := audit.Run(ctx, source, q)
	return report, errors.Join(err, bar.End())
}

// selectedCase returns the case that the flags name.
func (a *verifyFlags) selectedCase(ctx context.Context, db *audit.Database) (receipts.CaseID, error) {
	if a.caseID != "" {
		id, err := receipts.ParseCaseID(a.caseID)
		if err != nil {
			err = shell.WithCode(shell.ExitUsage, fmt.Errorf("--case %s is not a case id", a.caseID))
		}
		return id, err
	}
	id, found, err := db.CaseOf(ctx, a.tenant, a.transaction)
	if err == nil && !found {
		err = a.caseNotFound()
	}
	return id, err
}

// caseNotFound returns the error for a case that the tenant does not have.
func (a *verifyFlags) caseNotFound() error {
	return shell.NotFound(refusal.ErrNotFound, a.tenant, shell.CaseName(a.caseID, "", a.transaction))
}

// notChecked begins the verdicts on invariants that were not checked.
const notChecked = "not checked"

// onePerson returns the tenants with people: 1 among some tenants, or among all if none is given.
func onePerson(ctx context.Context, db *audit.Database, tenants []string) (out []string, err error) {
	found, err := db.OnePersonTenants(ctx)
	for _, tenant := range found {
		if len(tenants) == 0 || slices.Contains(tenants, tenant) {
			out = append(out, tenant)
		}
	}
	return out, err
}

// show writes the answer for people. names are the invariants in order.
func (v verifyAnswer) show(s *screen.Screen, names []string) error {
	s.Table([]screen.Column{{Name: "Cases", Right: true}, {Name: "Runs", Right: true}, {Name: "Receipts", Right: true}, {Name: "Chains verified", Right: true}},
		[][]string{{strconv.Itoa(v.Cases), strconv.Itoa(v.Runs), strconv.FormatInt(v.Receipts, 10), strconv.Itoa(v.Chains)}})
	if v.Receipts == 0 {
		s.Text("There are no receipts.")
	}
	if f := v.Archive; f != nil {
		s.Text("Archive: %s named, %d as their receipts say, %d missing, %d changed, %d unreadable.", shell.Plural(f.Files, "file"), f.Same, f.Missing, f.Changed, f.Unreadable)
	}
	for _, tenant := range v.OnePerson {
		s.Text("people: 1. In %s one person may decide about money by hand.", tenant)
	}
	if len(v.TriggersOff) > 0 {
		s.Text("Warning: %s disabled (%s): evidence can be changed. A data-only restore disables triggers, and so does an attacker. Find out which before you run recourse migrate, which enables them again.",
			shell.Plural(len(v.TriggersOff), "trigger"), strings.Join(v.TriggersOff, ", "))
	}
	if v.TrailsWithoutHead != nil {
		s.Text("Heads: %s compared, %s without a saved head.", shell.Plural(v.Compared, "saved head"), shell.Plural(*v.TrailsWithoutHead, "trail"))
	} else {
		s.Text("No heads were compared. Only saved heads (--heads) reveal a recomputed chain, or a removed end of a chain whose case was reset to match.")
	}
	s.Title("Invariants")
	var rows [][]string
	for _, name := range names {
		switch verdict := v.Invariants[name]; {
		case verdict == "ok":
			rows = append(rows, []string{s.Good("ok"), name})
		case strings.HasPrefix(verdict, notChecked):
			rows = append(rows, []string{"-", name + ": " + verdict})
		default:
			rows = append(rows, []string{s.Bad("BROKEN"), name})
		}
	}
	s.Table([]screen.Column{{Name: ""}, {Name: "Invariant", Wraps: true}}, rows)
	for _, name := range names {
		v.showBreaks(s, name)
	}
	if more := v.TotalBreaks - len(v.Breaks); more > 0 {
		s.Text("%d more are not listed.", more)
	}
	return s.Err()
}

// showBreaks lists what broke an invariant.
func (v verifyAnswer) showBreaks(s *screen.Screen, name string) {
	var rows [][]string
	for _, b := range v.Breaks {
		if b.Invariant != name {
			continue
		}
		caseID := ""
		if !b.Case.IsZero() {
			caseID = b.Case.String()
		}
		rows = append(rows, []string{b.Tenant, caseID, b.What})
	}
	if len(rows) == 0 {
		return
	}
	s.Title("Broken: %s", name)
	s.Table([]screen.Column{{Name: "Tenant", Optional: true}, {Name: "Case", Optional: true}, {Name: "What", Wraps: true}}, rows)
}
