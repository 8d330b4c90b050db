package rig

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/settlement"
)

// Audit audits tenants, or all, through the reader of the service.
func (r *Rig) Audit(ctx context.Context, tenants ...string) (*audit.Report, error) {
	return audit.Run(ctx, r.AuditReader(), r.AuditQuery(tenants...))
}

// MustAudit checks the invariants, and that the escrow service paid each operation key
// at most once and exactly what the journal says.
func (r *Rig) MustAudit() *audit.Report {
	r.T.Helper()
	if err := r.DrainEvents(context.Background()); err != nil {
		r.T.Fatal(err)
	}
	a, err := r.Audit(context.Background())
	if err != nil {
		r.T.Fatal(err)
	}
	for _, name := range audit.Invariants {
		if v := a.Verdict(name); v != "ok" {
			r.T.Errorf("invariant %q: %s", name, v)
		}
	}
	if a.EarlyAttempts != 0 {
		r.T.Errorf("%d attempts before their time", a.EarlyAttempts)
	}
	r.checkLedger()
	r.checkReserved()
	return a
}

// checkReserved checks that what is reserved for open letters, for live runs and without a letter is what all cases have reserved. Where runs
// are live, the two may be read before and after a change: then they are read again.
func (r *Rig) checkReserved() {
	r.T.Helper()
	ctx := context.Background()
	tenants, err := r.Tenants(ctx)
	if err != nil {
		r.T.Fatal(err)
	}
	for _, tenant := range tenants {
		if tenant == postadjudication.AllTenants { // it has no cases
			continue
		}
		var apart string
		for range 5 {
			cases := r.As(tenant, "").Cases
			reserved, err := cases.Reserved(ctx)
			if err != nil {
				r.T.Fatal(err)
			}
			page, err := cases.List(ctx, casestatus.Filter{Reserved: true}, "", 1)
			if err != nil {
				r.T.Fatal(err)
			}
			all := settlement.Sums{}
			for currency, money := range page.Money {
				all.Add(currency, money.Reserved)
			}
			apart = ""
			if page.Total == reserved.All.Cases && maps.Equal(all, reserved.All.Money) {
				break
			}
			apart = fmt.Sprintf("%d cases of %s have reserved %s, and the sums of reserved money are %+v", page.Total, tenant, all, reserved)
		}
		if apart != "" {
			r.T.Error(apart)
		}
	}
}

// checkLedger compares the escrow service's append-only ledger with the journal: no key paid
// twice, no transaction paid both ways unless by generations, and for each transaction exactly
// what the journal says was moved.
func (r *Rig) checkLedger() {
	r.T.Helper()
	e := r.Escrow
	e.mu.Lock()
	defer e.mu.Unlock()
	keys, moved := map[escrow.OperationKey]int{}, map[string]map[settlement.Outcome]int64{}
	for _, p := range e.payments {
		if keys[p.call.OperationKey]++; keys[p.call.OperationKey] > 1 {
			r.T.Errorf("operation key %s was paid again", p.call.OperationKey)
		}
		s, err := r.Status(context.Background(), p.call.Tenant, p.call.Run)
		if err != nil {
			r.T.Fatal(err)
		}
		transaction := strings.TrimSuffix(s.RetryKey, ":"+string(p.call.Outcome))
		if moved[transaction] == nil {
			moved[transaction] = map[settlement.Outcome]int64{}
		}
		moved[transaction][p.call.Outcome] += p.minor
	}
	rows, err := r.DB.Query(`SELECT subject, released, refunded, held - released - refunded + coalesce(returned, 0) FROM recourse.cases c JOIN recourse.escrows e ON e.id = c.escrow_id WHERE unknown_open = 0`)
	if err != nil {
		r.T.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var transaction string
		var released, refunded, left int64
		if err := rows.Scan(&transaction, &released, &refunded, &left); err != nil {
			r.T.Fatal(err)
		}
		if m := moved[transaction]; m["release"] != released || m["refund"] != refunded {
			r.T.Errorf("%s: the escrow service released %d and refunded %d, the journal says %d and %d", transaction, m["release"], m["refund"], released, refunded)
		}
		if left < 0 && !r.AllowOverpaid {
			r.T.Errorf("%s: %d more was paid than the escrow holds", transaction, -left)
		}
	}
	if err := rows.Err(); err != nil {
		r.T.Fatal(err)
	}
}
