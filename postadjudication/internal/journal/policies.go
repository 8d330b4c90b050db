package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Policy is the retry policy that a person set for new runs of a tenant's family. Version 0
// means that none was ever set.
type Policy struct {
	Tenant, Family string
	Case           receipts.CaseID // of its receipts
	Version        int64
	Policy         retrypolicy.Policy
	AsConfigured   bool // Policy is unset: new runs use the configured one
	Actor, Reason  string
	At             time.Time
}

type policyRow struct {
	Tenant  string    `db:"tenant"`
	Family  string    `db:"family"`
	CaseID  uuid.UUID `db:"case_id"`
	Version int64     `db:"version"`
	Policy  string    `db:"policy"`
	Actor   string    `db:"actor"`
	Reason  string    `db:"reason"`
	At      time.Time `db:"at"`
}

func (r *policyRow) policy() (Policy, error) {
	out := Policy{Tenant: r.Tenant, Family: r.Family, Case: receipts.CaseID(r.CaseID), Version: r.Version, Actor: r.Actor, Reason: r.Reason, At: r.At.UTC()}
	if out.AsConfigured = r.Policy == ""; out.AsConfigured {
		return out, nil
	}
	var err error
	if out.Policy, err = retrypolicy.Parse(r.Policy); err != nil {
		return Policy{}, fmt.Errorf("journal: policy of family %s of %s: %w", r.Family, r.Tenant, err)
	}
	return out, nil
}

// Encoded returns the policy as in its row and its receipt; empty if AsConfigured.
func (p *Policy) Encoded() string {
	if p.AsConfigured {
		return ""
	}
	return p.Policy.Encode()
}

const policySQL = `SELECT tenant, family, case_id, version, policy, actor, reason, at FROM recourse.policies `

// Policies keeps retry policies.
type Policies struct {
	*shared
}

// List lists the policies that were set, for all tenants.
func (p *Policies) List(ctx context.Context) ([]Policy, error) {
	return p.selectPolicies(ctx, `ORDER BY tenant, family`)
}

// OfTenant lists the policies that were set for a tenant.
func (p *Policies) OfTenant(ctx context.Context, tenant string) ([]Policy, error) {
	return p.selectPolicies(ctx, `WHERE tenant = $1 ORDER BY family`, tenant)
}

// selectPolicies skips a policy that only a newer program can read, and passes the error to
// Warn: new runs then use the configured one.
func (p *Policies) selectPolicies(ctx context.Context, where string, args ...any) ([]Policy, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var rows []policyRow
	if err := p.readDB.SelectContext(ctx, &rows, policySQL+where, args...); err != nil {
		return nil, pg.Wrap(err)
	}
	out := make([]Policy, 0, len(rows))
	for i := range rows {
		policy, err := rows[i].policy()
		if err != nil {
			p.Warn(err)
			continue
		}
		out = append(out, policy)
	}
	return out, nil
}

// Update changes the policy of a tenant's family together with its receipt. decide
// returns the next policy and a description of the changes, or an error; it is called once,
// on the locked row. The version is incremented. It returns ErrBusy, and changes nothing,
// if another transaction holds the row for too long.
func (p *Policies) Update(ctx context.Context, tenant, family string, decide func(now Policy) (next Policy, changes string, err error)) (now Policy, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.StatementTimeout)
	defer cancel()
	tx, err := p.txPath.DB.BeginTx(ctx, nil)
	if err != nil {
		return now, pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	if now, err = lockPolicy(ctx, tx, tenant, family); err != nil {
		return now, busyOrWrapped(err)
	}
	next, changes, err := decide(now)
	if err != nil {
		return now, err
	}
	next.Tenant, next.Family, next.Case, next.Version = tenant, family, now.Case, now.Version+1
	if err := updatePolicyRow(ctx, tx, next, changes); err != nil {
		return now, busyOrWrapped(err)
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Policy)
	err = tx.Commit()
	failpoint.Hit(failpoint.JournalAfter, failpoint.Policy)
	if err != nil {
		return now, pg.Wrap(err)
	}
	p.SignalCommitted()
	return next, nil
}

// lockPolicy locks the row of a family's policy, and inserts it first if there is none.
func lockPolicy(ctx context.Context, tx *sql.Tx, tenant, family string) (Policy, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Policy{}, err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.policies (tenant, family, case_id, version, policy, actor, reason, at)
		VALUES ($1, $2, $3, 0, '', '', '', $4) ON CONFLICT DO NOTHING`, tenant, family, id, time.Time{}); err != nil {
		return Policy{}, err
	}
	found, err := pg.QueryAll[policyRow](ctx, tx, policySQL+`WHERE tenant = $1 AND family = $2 FOR NO KEY UPDATE`, tenant, family)
	if err != nil {
		return Policy{}, err
	}
	if len(found) != 1 {
		return Policy{}, fmt.Errorf("%d policies of one family", len(found))
	}
	return found[0].policy()
}

func updatePolicyRow(ctx context.Context, tx *sql.Tx, p Policy, changes string) error {
	if _, err := tx.ExecContext(ctx, `UPDATE recourse.policies SET version = $3, policy = $4, actor = $5, reason = $6, at = $7 WHERE tenant = $1 AND family = $2`,
		p.Tenant, p.Family, p.Version, p.Encoded(), p.Actor, p.Reason, p.At); err != nil {
		return err
	}
	opsCase := Case{ID: p.Case, Tenant: p.Tenant, Kind: KindOperations, Subject: "policy:" + p.Family}
	return appendReceipt(ctx, tx, opsCase, receipts.Draft{Subtype: receipts.PolicyChanged, Actor: p.Actor, At: p.At, Payload: receipts.Payload{
		Family: p.Family, Policy: p.Encoded(), Changes: changes, Reason: p.Reason,
	}})
}
