package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// An auditor needs no service: a role that may read is enough. The heads of this audit are kept, and show the next
// one that nothing before them was changed.
func ExampleRun() {
	svc, stop := rig.Example() // a service that runs, on servers of its own
	defer stop()
	ctx := context.Background()
	dead := svc.DeadLetter(1, rig.Refuses)

	db, err := audit.Open(ctx, svc.DatabaseURL)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	report, err := audit.Run(ctx, db, audit.Query{})
	if err != nil {
		panic(err)
	}
	fmt.Println(report.OK(), report.Cases, report.Chains)
	for _, invariant := range audit.Invariants {
		fmt.Println(report.Verdict(invariant), "-", invariant)
	}
	saved := report.Heads // kept where nobody who can write the database can write

	one, err := audit.Case(ctx, db, "acme", dead.Case, audit.Query{})
	fmt.Println(one.OK(), one.Receipts, err)

	// In the process of a service its own connections serve, and its configuration says what is right.
	again, err := audit.Run(ctx, svc.AuditReader(), svc.AuditQuery("acme"))
	if err != nil {
		panic(err)
	}
	broken, err := audit.CompareHeads(ctx, svc.AuditReader(), saved, again)
	fmt.Println(again.OK(), len(broken), err)
	cases, tenants, err := audit.HeadsOfOtherTenants(ctx, db, "acme", saved) // which an audit of acme alone says nothing of
	fmt.Println(cases, tenants, err)
	// Output:
	// true 1 1
	// ok - every accepted adjudication is accounted for
	// ok - budgets kept, no attempt before its time
	// ok - every open letter has its one receipt and event and its case is dispute-ready
	// ok - every chain verifies
	// ok - stored state equals the fold of the receipts
	// ok - escrow sums equal the cases' sums
	// ok - the order of events has every receipt once and nothing else
	// true 3 <nil>
	// true 0 <nil>
	// 0 [] <nil>
}

// Receipts can be taken away in a file, and checked there as far as receipts alone can show.
func ExampleOpenFile() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	letter := svc.DeadLetter(1, rig.Refuses)

	folder, err := os.MkdirTemp("", "audit")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	var text, one bytes.Buffer
	written, err := audit.WriteFile(ctx, svc.AuditReader(), []string{"acme"}, &text)
	fmt.Println(written.Receipts, err)
	ofCase, err := audit.WriteCase(ctx, svc.AuditReader(), "acme", letter.Case, &one)
	fmt.Println(ofCase.Heads[letter.Case] == written.Heads[letter.Case], err)
	check := func(name string, text []byte) (*audit.Report, error) {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, err
		}
		file, err := audit.OpenFile(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return audit.Run(ctx, file, audit.Query{})
	}
	report, err := check("receipts", text.Bytes())
	fmt.Println(report.OK(), report.Verdict(audit.InvariantChains), err)
	fmt.Println(report.Verdict(audit.InvariantEscrows))

	forged, err := check("forged", bytes.ReplaceAll(text.Bytes(), []byte("system:escrow"), []byte("system:nobody")))
	fmt.Println(forged.OK(), err)
	// Output:
	// 3 <nil>
	// true <nil>
	// true ok <nil>
	// not checked: there are receipts only
	// false <nil>
}
