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
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// verifyAnswer is the answer of receipts verify.
type verifyAnswer struct {
	OK                bool                     `json:"ok"`
	Cases             int                      `json:"cases"`
	Runs              int                      `json:"runs"`
	Receipts          int64                    `json:"receipts"`
	Chains            int                      `json:"chains_verified"`
	Expected          int                      `json:"heads_compared"`
	TrailsWithoutHead *int                     `json:"trails_without_head,omitempty"` // with --heads
	Invariants        map[string]string        `json:"invariants"`                    // name -> "ok", "not checked for one case", or its first break
	Breaks            []postadjudication.Break `json:"breaks"`
	TotalBreaks       int                      `json:"breaks_in_all"` // includes breaks that are not listed

	OnePerson []string `json:"people_1,omitempty"` // tenants with people: 1

	// TriggersOff names the disabled triggers. It is a warning: a data-only restore disables them, too.
	TriggersOff []string `json:"triggers_off,omitempty"`

	Archive *postadjudication.ArchiveAudit `json:"archive,omitempty"` // with --archive
}

// verifyFlags select what is checked.
type verifyFlags struct {
	options             app.Options
	tenant              string
	all                 bool
	caseID, transaction string // one case
	heads, saveHeads    string
	archive             string
	maxRecoveries       int
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
events. Exit code 1 means that something is broken; then --save-heads writes no file.`,
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
	f.IntVar(&a.maxRecoveries, "max-recoveries", postadjudication.DefaultMaxRecoveries, "maximum number of lost workers a run may have, as configured by serve --max-recoveries; -1: unlimited")
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
	case a.singleCase() && a.saveHeads != "":
		return errors.New("--save-heads saves the heads of all cases: leave out --case and --transaction")
	}
	return nil
}

func verify(ctx context.Context, sh *shell.Shell, a verifyFlags) (err error) {
	expected, err := loadHeads(a.heads)
	if err != nil {
		return err
	}
	service, err := backend.OpenWith(ctx, sh, a.options, backend.AllowTriggersOff) // a database with disabled triggers is what verify must be able to read
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	if a.heads != "" && !a.all && !a.singleCase() {
		if err := checkHeads(ctx, service, a.heads, a.tenant, expected); err != nil {
			return err
		}
	}
	audit, err := runAudit(ctx, sh, service, a, expected)
	if err != nil {
		return err
	}
	v := verifyAnswer{OK: audit.OK(), Cases: audit.Cases, Runs: audit.Runs, Receipts: audit.Receipts, Chains: audit.Chains,
		Invariants: map[string]string{}, Breaks: audit.Breaks, TotalBreaks: audit.TotalBreaks, Archive: audit.Archive}
	if v.OnePerson, err = onePerson(ctx, service, a.tenants()); err != nil {
		return err
	}
	if v.TriggersOff, err = service.TriggersOff(ctx); err != nil {
		return err
	}
	names := slices.Clone(postadjudication.Invariants)
	if v.Archive != nil {
		names = append(names, postadjudication.InvariantArchive)
	}
	for _, name := range names {
		v.Invariants[name] = audit.Verdict(name)
	}
	if a.singleCase() {
		v.Invariants[postadjudication.InvariantOrder] = notChecked
	}
	if a.heads != "" {
		broken, err := service.CompareHeads(ctx, expected, audit)
		if err != nil {
			return err
		}
		for i := range broken {
			broken[i].Tenant = cmp.Or(broken[i].Tenant, a.tenant)
		}
		v.heads(expected, audit.Heads, broken)
		names = append(names, postadjudication.InvariantHeads)
	}
	nothing := audit.Receipts == 0 && !a.all && v.OK
	v.OK = v.OK && !nothing // a tenant whose rows were all removed has no receipts, either
	if err := saveHeads(sh, a.saveHeads, v, audit); err != nil {
		return err
	}
	if sh.JSON {
		err = sh.Answer(v)
	} else {
		err = v.show(sh.Screen(), names)
	}
	switch {
	case err != nil || v.OK:
		return err
	case nothing:
		return fmt.Errorf("tenant %s has no receipts: check its name", a.tenant)
	}
	return errInvariantBroken
}

// saveHeads writes the heads of an audit to a file, if one is named, nothing is broken and no
// trigger is disabled.
func saveHeads(sh *shell.Shell, name string, v verifyAnswer, audit *postadjudication.Audit) error {
	switch {
	case name == "":
		return nil
	case !v.OK:
		sh.Note(name + " was not written: something is broken.")
		return nil
	case len(v.TriggersOff) > 0:
		sh.Note(name + " was not written: triggers are disabled.")
		return nil
	}
	return writeHeads(name, audit.Heads)
}

// runAudit checks what the flags select. For one case it removes all other cases from expected.
func runAudit(ctx context.Context, sh *shell.Shell, service *postadjudication.Service, a verifyFlags, expected map[receipts.CaseID]receipts.Head) (_ *postadjudication.Audit, err error) {
	q := postadjudication.AuditQuery{Tenants: a.tenants(), MaxRecoveries: a.maxRecoveries}
	if a.archive != "" {
		if q.Archive, err = postadjudication.OpenArchiveDir(a.archive); err != nil {
			return nil, shell.WithCode(shell.ExitUsage, err)
		}
	}
	if a.singleCase() {
		l := receiptFlags{tenant: a.tenant, transaction: a.transaction, caseID: a.caseID}
		caseID, _, err := l.resolve(ctx, service)
		if err != nil {
			return nil, shell.NotFound(err, a.tenant, l.caseName())
		}
		if head, noted := expected[caseID]; a.heads != "" {
			if !noted {
				return nil, shell.WithCode(shell.ExitUsage, fmt.Errorf("%s has no head of case %s to compare with", a.heads, caseID))
			}
			clear(expected)
			expected[caseID] = head
		}
		q.Case = caseID
		audit, err := service.AuditWith(ctx, q)
		if a.heads != "" && errors.Is(err, postadjudication.ErrNotFound) { // the head was saved: CompareHeads reports the missing case
			return postadjudication.EmptyAudit(), nil
		}
		return audit, shell.NotFound(err, a.tenant, l.caseName())
	}
	bar := &screen.Stages{}
	if !sh.JSON {
		bar = screen.NewStages(sh.Err)
		q.Progress = bar.At
	}
	audit, err := service.AuditWith(ctx, q)
	return audit, errors.Join(err, bar.End())
}

// notChecked is the verdict on the order of events when one case is checked.
const notChecked = "not checked for one case"

// heads adds the result of comparing saved heads with the present ones.
func (v *verifyAnswer) heads(noted, there map[receipts.CaseID]receipts.Head, broken []postadjudication.Break) {
	v.Expected, v.Invariants[postadjudication.InvariantHeads] = len(noted), "ok"
	unnoted := 0
	for caseID := range there {
		if _, ok := noted[caseID]; !ok {
			unnoted++
		}
	}
	v.TrailsWithoutHead = &unnoted
	if len(broken) == 0 {
		return
	}
	v.OK, v.Invariants[postadjudication.InvariantHeads] = false, broken[0].What
	v.TotalBreaks += len(broken)
	v.Breaks = append(v.Breaks, broken[:min(len(broken), postadjudication.MaxBreaks)]...)
}

// onePerson returns the tenants with people: 1 among some tenants, or among all if none is given.
func onePerson(ctx context.Context, service *postadjudication.Service, tenants []string) (out []string, err error) {
	found, err := service.OnePersonTenants(ctx)
	for _, p := range found {
		if len(tenants) == 0 || slices.Contains(tenants, p.Tenant) {
			out = append(out, p.Tenant)
		}
	}
	return out, err
}

func (v verifyAnswer) show(s *screen.Screen, names []string) error {
	s.Table([]screen.Column{{Name: "Cases", Right: true}, {Name: "Runs", Right: true}, {Name: "Receipts", Right: true}, {Name: "Chains verified", Right: true}},
		[][]string{{strconv.Itoa(v.Cases), strconv.Itoa(v.Runs), strconv.FormatInt(v.Receipts, 10), strconv.Itoa(v.Chains)}})
	if f := v.Archive; f != nil {
		s.Text("Archive: %s named, %d as their receipts say, %d missing, %d changed, %d without a digest.", shell.Plural(f.Files, "file"), f.Same, f.Missing, f.Changed, f.WithoutDigest)
	}
	for _, tenant := range v.OnePerson {
		s.Text("people: 1. In %s one person may decide about money by hand.", tenant)
	}
	if len(v.TriggersOff) > 0 {
		s.Text("Warning: %s disabled (%s): evidence can be changed. A data-only restore disables triggers, and so does an attacker. Find out which before you run recourse migrate, which enables them again.",
			shell.Plural(len(v.TriggersOff), "trigger"), strings.Join(v.TriggersOff, ", "))
	}
	if v.TrailsWithoutHead != nil {
		s.Text("Heads: %s compared, %s without a saved head.", shell.Plural(v.Expected, "saved head"), shell.Plural(*v.TrailsWithoutHead, "trail"))
	} else {
		s.Text("No heads were compared. Only saved heads (--heads) reveal a recomputed chain, or a removed end of a chain whose case was reset to match.")
	}
	s.Title("Invariants")
	var rows [][]string
	for _, name := range names {
		switch v.Invariants[name] {
		case "ok":
			rows = append(rows, []string{s.Good("ok"), name})
		case notChecked:
			rows = append(rows, []string{"-", name + ": " + notChecked})
		default:
			rows = append(rows, []string{s.Bad("BROKEN"), name})
		}
	}
	s.Table([]screen.Column{{Name: ""}, {Name: "Invariant", Wraps: true}}, rows)
	for _, name := range names {
		v.showBreaks(s, name)
	}
	if more := v.TotalBreaks - len(v.Breaks); more > 0 {
		s.Text("%s more are not listed.", fmt.Sprint(more))
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
