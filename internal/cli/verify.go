package cli

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
)

// invariantHeads is what a file of heads adds to an audit.
const invariantHeads = "no trail is cut off or rewritten before its expected head"

// verification is the answer of receipts verify.
type verification struct {
	OK         bool              `json:"ok"`
	Cases      int               `json:"cases"`
	Runs       int               `json:"runs"`
	Receipts   int64             `json:"receipts"`
	Chains     int               `json:"chains_verified"`
	Expected   int               `json:"heads_compared"`
	OnePerson  []string          `json:"people_1,omitempty"` // tenants whose money takes one person
	Invariants map[string]string `json:"invariants"`         // name -> "ok" or what broke it
}

// auditing says what is to be checked.
type auditing struct {
	options          app.Options
	tenant           string
	all              bool
	heads, saveHeads string
}

func (c *command) receiptsVerify() *cobra.Command {
	var a auditing
	cmd := &cobra.Command{
		Use: "verify", Short: "Check every chain, and the stored state against the receipts", Args: exactly(),
		Long: `Check every chain of receipts, and that the stored state is what they tell. A chain
that is cut off at its end still verifies by itself: keep its head elsewhere by
--save-heads, and compare by --heads later. Exit code 1 when something is broken.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case a.tenant == "" && !a.all:
				return usage(cmd, errors.New("--tenant is missing (or say --all-tenants)"))
			case a.tenant != "" && a.all:
				return usage(cmd, errors.New("--tenant and --all-tenants exclude each other"))
			case a.heads != "" && a.all:
				return usage(cmd, errors.New("--heads is about one tenant: name it by --tenant"))
			}
			return c.verify(cmd.Context(), a)
		},
	}
	f := cmd.Flags()
	a.options.BindLook(f)
	f.StringVar(&a.tenant, "tenant", "", "whose")
	f.BoolVar(&a.all, "all-tenants", false, "everybody's")
	f.StringVar(&a.heads, "heads", "", "file of heads noted earlier, to notice a missing tail")
	f.StringVar(&a.saveHeads, "save-heads", "", "file to note the heads in, when nothing is broken")
	return cmd
}

func (c *command) verify(ctx context.Context, a auditing) (err error) {
	expected, err := readHeads(a.heads)
	if err != nil {
		return err
	}
	service, err := c.opened(ctx, a.options, func(o *app.Options) (postadjudication.Config, error) {
		config, err := o.Look()
		config.Unguarded = true // what may have been changed is what is looked for
		return config, err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	var tenants []string
	if !a.all {
		tenants = []string{a.tenant}
	}
	audit, err := service.Audit(ctx, tenants...)
	if err != nil {
		return err
	}
	v := verification{OK: audit.OK(), Cases: audit.Cases, Runs: audit.Runs, Receipts: audit.Receipts, Chains: audit.Chains, Invariants: map[string]string{}}
	if v.OnePerson, err = onePerson(ctx, service, tenants); err != nil {
		return err
	}
	names := slices.Clone(postadjudication.Invariants)
	for _, name := range names {
		v.Invariants[name] = audit.Verdict(name)
	}
	if a.heads != "" {
		verdict, err := compareHeads(ctx, service, a.tenant, expected, audit.Heads)
		if err != nil {
			return err
		}
		v.Expected, v.Invariants[invariantHeads] = len(expected), verdict
		v.OK = v.OK && verdict == "ok"
		names = append(names, invariantHeads)
	}
	if v.OK && a.saveHeads != "" {
		if err := writeHeads(a.saveHeads, audit.Heads); err != nil {
			return err
		}
	}
	if c.json {
		err = c.answer(v)
	} else {
		err = v.show(screen.New(c.Out), names)
		if audit.Receipts == 0 && !a.all {
			c.note("There is nothing of a tenant " + a.tenant + ": is that its name?")
		}
	}
	if err == nil && !v.OK {
		err = errBroken
	}
	return err
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

func (v verification) show(s *screen.Screen, names []string) error {
	s.Table([]screen.Column{{Name: "Cases", Right: true}, {Name: "Runs", Right: true}, {Name: "Receipts", Right: true}, {Name: "Chains verified", Right: true}},
		[][]string{{strconv.Itoa(v.Cases), strconv.Itoa(v.Runs), strconv.FormatInt(v.Receipts, 10), strconv.Itoa(v.Chains)}})
	for _, tenant := range v.OnePerson {
		s.Text("people: 1. Money of %s is stated and freed by one person.", tenant)
	}
	s.Title("Invariants")
	var rows [][]string
	for _, name := range names {
		verdict := s.Good("ok")
		if v.Invariants[name] != "ok" {
			verdict = s.Bad("BROKEN")
		}
		rows = append(rows, []string{verdict, name})
	}
	s.Table([]screen.Column{{Name: ""}, {Name: "Invariant", Wraps: true}}, rows)
	for _, name := range names {
		if v.Invariants[name] != "ok" {
			s.Text("%s %s: %s", s.Bad("broken:"), name, v.Invariants[name])
		}
	}
	return s.Err()
}
