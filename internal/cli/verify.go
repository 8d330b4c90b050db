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
	Invariants        map[string]string        `json:"invariants"`                    // name -> "ok", "not checked for one case", or the first thing that broke it
	Breaks            []postadjudication.Break `json:"breaks"`
	TotalBreaks       int                      `json:"breaks_in_all"` // also those that are not listed

	OnePerson []string `json:"people_1,omitempty"` // tenants whose money takes one person

	// TriggersOff names what is not in force: a warning, for a data-only restore looks the same.
	TriggersOff []string `json:"triggers_off,omitempty"`

	Archive *postadjudication.ArchiveAudit `json:"archive,omitempty"` // with --archive
}

// verifyFlags says what is to be checked.
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
		Use: "verify", Short: "Check every chain, and the stored state against the receipts", Args: shell.Exactly(),
		Long: `Check every chain of receipts, and that the stored state is what they tell, and list
everything that is broken. A chain that is cut off at its end still verifies by itself:
keep its head elsewhere by --save-heads, and compare by --heads later. --case and
--transaction check one case alone: its chain, its state, its escrow's sums and how the
list of letters shows it; the order of events is not checked then. Heads that were noted
of all tenants are compared by --all-tenants. Exit code 1 when something is broken: then
--save-heads notes nothing.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.check(); err != nil {
				return shell.Usage(cmd, err)
			}
			return verify(cmd.Context(), sh, a)
		},
	}
	f := cmd.Flags()
	a.options.BindReadOnly(f)
	f.StringVar(&a.tenant, "tenant", "", "name of the tenant (or --all-tenants)")
	f.BoolVar(&a.all, "all-tenants", false, "all tenants, instead of --tenant")
	f.StringVar(&a.caseID, "case", "", "only this case, by its id")
	f.StringVar(&a.transaction, "transaction", "", "only the case of this transaction receipt id")
	f.StringVar(&a.heads, "heads", "", "file of heads noted earlier by --save-heads of the same tenant, or of all, to notice a missing tail")
	f.StringVar(&a.saveHeads, "save-heads", "", "file to note the heads in, when nothing is broken")
	f.StringVar(&a.archive, "archive", "", "directory with the archive of dead letters: compare each file that a receipt names, or with --case that one of its receipts names")
	f.IntVar(&a.maxRecoveries, "max-recoveries", postadjudication.DefaultMaxRecoveries, "how many lost workers the runs of these tenants may have, as the processes that execute are configured; -1: any number")
	return cmd
}

// tenants are those whose trails are checked; none stands for all.
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
		return errors.New("a case is one tenant's: name it by --tenant")
	case a.singleCase() && a.saveHeads != "":
		return errors.New("--save-heads notes the heads of all cases, so that it is not for one of them")
	}
	return nil
}

func verify(ctx context.Context, sh *shell.Shell, a verifyFlags) (err error) {
	expected, err := loadHeads(a.heads)
	if err != nil {
		return err
	}
	service, err := backend.OpenWith(ctx, sh, a.options, backend.AllowTriggersOff) // what may have been changed is what is looked for
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
	v.OK = v.OK && !nothing // of a tenant of whom everything was removed there is nothing either
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
		return fmt.Errorf("there is nothing of a tenant %s: is that its name?", a.tenant)
	}
	return errInvariantBroken
}

// saveHeads notes the heads of an audit in a file, if one is named and nothing speaks against them.
func saveHeads(sh *shell.Shell, name string, v verifyAnswer, audit *postadjudication.Audit) error {
	switch {
	case name == "":
		return nil
	case !v.OK:
		sh.Note("Something is broken, so that no heads were noted: " + name + " was not written.")
		return nil
	case len(v.TriggersOff) > 0:
		sh.Note("Triggers are off, so that no heads were noted: " + name + " was not written.")
		return nil
	}
	return writeHeads(name, audit.Heads)
}

// runAudit checks what is asked for. Of noted heads, it leaves those of the case that is.
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
				return nil, shell.WithCode(shell.ExitUsage, fmt.Errorf("%s holds no head of case %s, so that nothing can be compared with it", a.heads, caseID))
			}
			clear(expected)
			expected[caseID] = head
		}
		q.Case = caseID
		audit, err := service.AuditWith(ctx, q)
		if a.heads != "" && errors.Is(err, postadjudication.ErrNotFound) { // it was noted: that it is gone is a break
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

// notChecked is what is said of the order of events where one case is checked alone.
const notChecked = "not checked for one case"

// heads adds what comparing noted heads with those that are there has found.
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

// onePerson names those of some tenants, or of all, whose money takes one person.
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
		s.Text("people: 1. Money of %s is stated and freed by one person.", tenant)
	}
	if len(v.TriggersOff) > 0 {
		s.Text("Warning: %s not in force (%s): evidence can be changed. A data-only restore turns triggers off, and so does who means to change evidence. Run recourse migrate, which puts them in force, only after that was looked into.",
			shell.Plural(len(v.TriggersOff), "trigger"), strings.Join(v.TriggersOff, ", "))
	}
	if v.TrailsWithoutHead != nil {
		s.Text("Heads: %s compared, %s without a noted head.", shell.Plural(v.Expected, "noted head"), shell.Plural(*v.TrailsWithoutHead, "trail"))
	} else {
		s.Text("No heads were compared: a chain that was computed anew, and a cut end whose case was set back, can be noticed only by heads that were noted before (--heads).")
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
