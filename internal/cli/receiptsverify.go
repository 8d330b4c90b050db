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
	"github.com/spf13/pflag"

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
	OtherHeads        int               `json:"heads_of_other_cases,omitempty"` // saved heads that were not compared, as one case was verified
	TrailsWithoutHead *int              `json:"trails_without_head,omitempty"`  // with --heads
	Invariants        map[string]string `json:"invariants"`                     // name -> "ok", why it was not checked, or its first break
	Breaks            []audit.Break     `json:"breaks"`
	TotalBreaks       int               `json:"breaks_in_all"` // includes breaks that are not listed

	OnePerson []string `json:"people_1,omitempty"` // tenants with people: 1

	// GuardsOff names what protects evidence and is off or changed. It is a warning: a data-only restore disables triggers, too.
	GuardsOff []string `json:"guards_off,omitempty"`

	Archive *audit.Archived `json:"archive,omitempty"` // with --archive

	// EndedEarly is the error that ended the verification, if one did. Then only what was found until then is here.
	EndedEarly string `json:"ended_early,omitempty"`

	names      []string // of the invariants, in the order to show them
	notChecked []string // those of them that were not checked
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
	force               bool // replace files that exist
}

func receiptsVerify(sh *shell.Shell) *cobra.Command {
	var flags verifyFlags
	cmd := &cobra.Command{
		Use: "verify", Short: "Verify every chain, and the stored state against the receipts", Args: shell.Exactly(),
		Long: `Verify every chain of receipts, compare the stored state with the receipts, and list all
breaks. A chain whose end was removed still verifies by itself: store its head elsewhere
with --save-heads, and compare later with --heads. Heads saved for all tenants must be
compared with --all-tenants. --case and --transaction verify one case: its chain, its
state, its escrow's sums and its row in the list of dead letters, but not the order of
events. Exit code 1 means that something is broken, or that a disabled trigger kept
--save-heads from writing its file. If an error ends the verification, what it found until
then is listed.

The role of the database URL needs USAGE on the schema recourse and SELECT on its tables, and
nothing else; a standby will do. --file verifies a file that receipts export wrote, without a
database: each chain, and that each receipt may follow those before it. What a comparison
with the stored state would show is listed as checked in part, or as not checked. A file of one
case is compared with the head of that case, in a file of many heads too.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return shell.Usage(cmd, err)
			}
			if err := shell.CheckNew(flags.saveHeads, flags.force); err != nil {
				return err
			}
			return verify(cmd.Context(), sh, flags)
		},
	}
	f := cmd.Flags()
	flags.bindSelection(f)
	f.StringVar(&flags.heads, "heads", "", "file written by --save-heads, for the same tenant or for all: reports chains whose end is missing")
	f.StringVar(&flags.saveHeads, "save-heads", "", "file to write the heads to, if nothing is broken; a file that exists is refused")
	f.BoolVar(&flags.force, "force", false, "replace the file of --save-heads, if it exists")
	f.StringVar(&flags.archive, "archive", "", "directory of the archive of dead letters: verify each file that a receipt names (with --case, a receipt of that case)")
	f.StringVar(&flags.file, "file", "", "verify this file of receipts export instead of a database")
	f.Var(&flags.maxRecoveries, "max-recoveries", `how many lost workers a run may have, as serve --max-recoveries says: a number, or "unlimited"`)
	return cmd
}

// bindSelection defines the flags of the database and of what is selected in it.
func (flags *verifyFlags) bindSelection(f *pflag.FlagSet) {
	flags.options.BindReadOnly(f)
	f.StringVar(&flags.tenant, "tenant", "", "tenant to act on (required without --all-tenants)")
	f.BoolVar(&flags.all, "all-tenants", false, "all tenants, instead of --tenant")
	f.StringVar(&flags.caseID, "case", "", "only this case, by its id")
	f.StringVar(&flags.transaction, "transaction", "", "only the case of this transaction receipt id")
}

// tenants returns the tenants to check; nil means all.
func (flags *verifyFlags) tenants() []string {
	if flags.all {
		return nil
	}
	return []string{flags.tenant}
}

// singleCase reports whether a single case is to be checked.
func (flags *verifyFlags) singleCase() bool { return flags.caseID != "" || flags.transaction != "" }

// check returns an error for flags that exclude or lack each other.
func (flags *verifyFlags) check() error {
	if err := flags.checkSelection(); err != nil {
		return err
	}
	switch {
	case flags.file != "" && flags.transaction != "":
		return errors.New("--transaction needs a database: with --file, name the case by --case")
	case flags.singleCase() && flags.saveHeads != "":
		return errors.New("--save-heads saves the heads of all cases: leave out --case and --transaction")
	}
	return nil
}

// checkSelection is check for the flags of bindSelection.
func (flags *verifyFlags) checkSelection() error {
	switch {
	case flags.tenant == "" && !flags.all:
		return errors.New("--tenant is missing (or say --all-tenants)")
	case flags.tenant != "" && flags.all:
		return errors.New("--tenant and --all-tenants exclude each other")
	case flags.caseID != "" && flags.transaction != "":
		return errors.New("name the case by one of --case and --transaction")
	case flags.singleCase() && flags.all:
		return errors.New("--case and --transaction need --tenant, not --all-tenants")
	}
	return nil
}

// open opens the database or the file to verify. db is nil for a file.
func (flags *verifyFlags) open(ctx context.Context, sh *shell.Shell) (source audit.ReceiptReader, db *audit.Database, end func() error, err error) {
	if flags.file != "" {
		f, err := audit.OpenFile(flags.file)
		if err != nil {
			return nil, nil, nil, shell.WithCode(shell.ExitUsage, err)
		}
		return f, nil, f.Close, nil
	}
	if db, err = openAudit(ctx, sh, flags.options); err != nil {
		return nil, nil, nil, err
	}
	return db, db, db.Close, nil
}

// verify audits what the flags select, compares saved heads, and writes the answer. It returns an
// error if anything is broken, or if there are no receipts.
func verify(ctx context.Context, sh *shell.Shell, flags verifyFlags) (err error) {
	saved, err := loadHeads(sh, flags.heads)
	if err != nil {
		return err
	}
	source, db, end, err := flags.open(ctx, sh)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if file, ok := source.(*audit.File); ok && flags.heads != "" && !flags.singleCase() {
		flags.selectOnlyCase(file)
	}
	loaded := len(saved)
	if flags.heads != "" && !flags.all && !flags.singleCase() {
		if err := checkHeads(ctx, source, flags.heads, flags.tenant, saved); err != nil {
			return err
		}
	}
	report, err := runAudit(ctx, sh, source, db, flags, saved)
	if err != nil {
		return flags.endEarly(sh, report, err)
	}
	v, err := flags.answer(ctx, source, db, report, saved)
	if err != nil {
		return flags.endEarly(sh, report, err)
	}
	if flags.heads != "" && flags.singleCase() {
		v.OtherHeads = loaded - v.Compared
	}
	nothing := report.Receipts == 0 && (!flags.all || flags.file != "") && v.OK
	if nothing { // also a tenant whose rows were all removed: nothing was there to be checked
		v.checkedNothing()
	}
	if err := saveHeads(sh, flags.saveHeads, v, report); err != nil {
		return err
	}
	err = v.write(sh)
	switch {
	case err == nil && v.OK && flags.saveHeads != "" && len(v.GuardsOff) > 0:
		return fmt.Errorf("%s was not written: what protects evidence is off or changed", flags.saveHeads)
	case err != nil || v.OK:
		return err
	case nothing && flags.file != "":
		return fmt.Errorf("%s has no receipts: it is empty, or has none of that tenant", flags.file)
	case nothing:
		return fmt.Errorf("tenant %s has no receipts: check its name", flags.tenant)
	}
	return errInvariantBroken
}

// endEarly writes what an audit found before an error ended it or what follows it, if it found anything, and returns the error.
// Heads are neither compared nor saved: of the cases that were not read there are none.
func (flags *verifyFlags) endEarly(sh *shell.Shell, report *audit.Report, cause error) error {
	if report == nil || report.Cases == 0 && report.OK() {
		return cause
	}
	v := answerOf(report)
	v.OK, v.EndedEarly = false, cause.Error()
	for _, name := range v.names {
		if v.Invariants[name] == "ok" {
			v.Invariants[name], v.notChecked = "not checked to the end", append(v.notChecked, name)
		}
	}
	if flags.saveHeads != "" {
		sh.Note(flags.saveHeads + " was not written: the verification ended early.")
	}
	if !report.OK() {
		cause = shell.WithCode(shell.ExitFailed, fmt.Errorf("%w, and the verification ended early: %w", errInvariantBroken, cause))
	}
	return errors.Join(cause, v.write(sh))
}

// answerOf returns what an audit found.
func answerOf(report *audit.Report) verifyAnswer {
	v := verifyAnswer{OK: report.OK(), Cases: report.Cases, Runs: report.Runs, Receipts: report.Receipts, Chains: report.Chains,
		Invariants: map[string]string{}, Breaks: report.Breaks, TotalBreaks: report.TotalBreaks, Archive: report.Archive, names: slices.Clone(audit.Invariants)}
	if v.Archive != nil {
		v.names = append(v.names, audit.InvariantArchive)
	}
	for _, name := range v.names {
		v.Invariants[name] = report.Verdict(name)
		if _, broken := report.Broken[name]; !broken && slices.Contains(report.NotChecked, name) {
			v.notChecked = append(v.notChecked, name)
		}
	}
	return v
}

// checkedNothing has the answer say that there was nothing to check: it is not OK, and no invariant is.
func (v *verifyAnswer) checkedNothing() {
	v.OK, v.notChecked = false, v.names
	for _, name := range v.names {
		v.Invariants[name] = "not checked: there are no receipts"
	}
}

// answer returns what was found, and the result of a comparison with saved heads.
func (flags *verifyFlags) answer(ctx context.Context, source audit.ReceiptReader, db *audit.Database, report *audit.Report, saved receipts.Heads) (v verifyAnswer, err error) {
	v = answerOf(report)
	if db != nil {
		if v.OnePerson, err = onePerson(ctx, db, flags.tenants()); err != nil {
			return v, err
		}
		if v.GuardsOff, err = db.GuardsOff(ctx); err != nil {
			return v, err
		}
	}
	if flags.heads != "" {
		broken, err := audit.CompareHeads(ctx, source, saved, report)
		if err != nil {
			return v, err
		}
		for i := range broken {
			broken[i].Tenant = cmp.Or(broken[i].Tenant, flags.tenant)
		}
		v.addHeadBreaks(saved, report.Heads, broken)
	}
	return v, nil
}

// runAudit checks what the flags select. For one case it removes all other cases from saved. The report that
// comes with an error, if any, has what was found until then.
func runAudit(ctx context.Context, sh *shell.Shell, source audit.ReceiptReader, db *audit.Database, flags verifyFlags, saved receipts.Heads) (_ *audit.Report, err error) {
	q := audit.Query{Tenants: flags.tenants(), MaxRecoveries: int(flags.maxRecoveries)}
	if flags.archive != "" {
		if q.Archive, err = audit.OpenArchive(flags.archive); err != nil {
			return nil, shell.WithCode(shell.ExitUsage, err)
		}
	}
	if flags.singleCase() {
		if q.Case, err = flags.selectedCase(ctx, db); err != nil {
			return nil, err
		}
		if head, ok := saved[q.Case]; flags.heads != "" {
			if !ok {
				return nil, shell.WithCode(shell.ExitUsage, fmt.Errorf("%s has no head of case %s to compare with", flags.heads, q.Case))
			}
			clear(saved)
			saved[q.Case] = head
		}
		report, err := audit.Run(ctx, source, q)
		switch {
		case !errors.Is(err, audit.ErrNotFound):
			return report, err
		case flags.heads != "": // the head was saved: CompareHeads reports the missing case
			return audit.Empty(source), nil
		}
		return nil, flags.caseNotFound()
	}
	bar := &screen.Stages{}
	if !sh.JSON {
		bar = screen.NewStages(sh.Err)
		q.Progress = bar.At
	}
	report, err := audit.Run(ctx, source, q)
	return report, errors.Join(err, bar.End())
}

// selectOnlyCase selects the case of a file that has only one, so that no head of another case is compared.
func (flags *verifyFlags) selectOnlyCase(file *audit.File) {
	if tenant, id, only := file.OnlyCase(); only && (flags.all || flags.tenant == tenant) {
		flags.tenant, flags.all, flags.caseID = tenant, false, id.String()
	}
}

// selectedCase returns the case that the flags name.
func (flags *verifyFlags) selectedCase(ctx context.Context, db *audit.Database) (receipts.CaseID, error) {
	if flags.caseID != "" {
		id, err := receipts.ParseCaseID(flags.caseID)
		if err != nil {
			err = shell.WithCode(shell.ExitUsage, fmt.Errorf("--case %s is not a case id", flags.caseID))
		}
		return id, err
	}
	id, found, err := db.CaseOf(ctx, flags.tenant, flags.transaction)
	if err == nil && !found {
		err = flags.caseNotFound()
	}
	return id, err
}

// caseNotFound returns the error for a case that the tenant does not have.
func (flags *verifyFlags) caseNotFound() error {
	return shell.NotFound(refusal.ErrNotFound, flags.tenant, shell.CaseName(flags.caseID, "", flags.transaction))
}

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

// write writes the answer.
func (v verifyAnswer) write(sh *shell.Shell) error {
	if sh.JSON {
		return sh.Answer(v)
	}
	return v.show(sh.Screen())
}

// show writes the answer for people.
func (v verifyAnswer) show(s *screen.Screen) error {
	s.Table([]screen.Column{{Name: "Cases", Right: true}, {Name: "Runs", Right: true}, {Name: "Receipts", Right: true}, {Name: "Chains verified", Right: true}},
		[][]string{{strconv.Itoa(v.Cases), strconv.Itoa(v.Runs), strconv.FormatInt(v.Receipts, 10), strconv.Itoa(v.Chains)}})
	if v.Receipts == 0 && v.EndedEarly == "" {
		s.Text("There are no receipts.")
	}
	if f := v.Archive; f != nil {
		s.Text("Archive: %s named, %d as their receipts say, %d missing, %d changed, %d unreadable.", shell.Plural(f.Files, "file"), f.Same, f.Missing, f.Changed, f.Unreadable)
	}
	for _, tenant := range v.OnePerson {
		s.Text("people: 1. In %s one person may decide about money by hand.", tenant)
	}
	if len(v.GuardsOff) > 0 {
		s.Text("Warning: %s of evidence not in force (%s): it can be changed. A data-only restore disables triggers, and so does an attacker, who can also change the rest. Find out which before you run recourse migrate, which restores them.",
			shell.Plural(len(v.GuardsOff), "guard"), strings.Join(v.GuardsOff, ", "))
	}
	switch {
	case v.EndedEarly != "":
		s.Text("The verification ended early. What it found until then is listed. No heads were compared.")
	case v.TrailsWithoutHead != nil:
		s.Text("Heads: %s compared, %s without a saved head.", shell.Plural(v.Compared, "saved head"), shell.Plural(*v.TrailsWithoutHead, "trail"))
		if v.OtherHeads > 0 {
			s.Text("One case was verified: %s of other cases not compared.", shell.Plural(v.OtherHeads, "saved head"))
		}
	default:
		s.Text("No heads were compared. Only saved heads (--heads) reveal a recomputed chain, or a removed end of a chain whose case was reset to match.")
	}
	s.Title("Invariants")
	var rows [][]string
	for _, name := range v.names {
		switch verdict := v.Invariants[name]; {
		case verdict == "ok":
			rows = append(rows, []string{s.Good("ok"), name})
		case slices.Contains(v.notChecked, name):
			rows = append(rows, []string{"-", name + ": " + verdict})
		default:
			rows = append(rows, []string{s.Bad("BROKEN"), name})
		}
	}
	s.Table([]screen.Column{{Name: ""}, {Name: "Invariant", Wraps: true}}, rows)
	for _, name := range v.names {
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
