package postadjudication_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

// The audit detects a hold placed directly in the database, a removed hold or mark, and a
// changed expiry, and names the letter.
func TestAnnotationsThatDifferFromTheirReceiptsAreFound(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	held, marked, plain, gone := r.DeadLetter(1, rig.Refuses), r.DeadLetter(2, rig.Refuses),
		r.DeadLetter(3, rig.Refuses), r.DeadLetter(4, rig.Refuses)
	yes, no := true, false
	for _, do := range []func() error{
		func() error {
			_, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, holdReason)
			return err
		},
		func() error {
			_, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, marked.Run, holdReason)
			return err
		},
		func() error {
			_, err := r.As("acme", "user:ada").DeadLetters.Release(ctx, marked.Run, holdReason)
			return err
		},
		func() error {
			_, err := r.As("acme", "user:ada").DeadLetters.Mark(ctx, marked.Run, deadletter.Mark{Reason: "first", ReprocessEligible: &yes, ManualReviewRequired: &yes})
			return err
		},
		func() error {
			_, err := r.As("acme", "user:ada").DeadLetters.Mark(ctx, marked.Run, deadletter.Mark{Reason: "then", ManualReviewRequired: &no})
			return err
		},
		func() error {
			_, err := r.As("acme", "user:ada").DeadLetters.Mark(ctx, gone.Run, deadletter.Mark{Reason: "it goes", ReprocessEligible: &no})
			return err
		},
		func() error {
			_, err := r.Purge(ctx, deadletter.Filter{Transaction: rig.Release(4).TransactionReceiptID})
			return err
		},
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	r.NewPruner().At(174 * day).MustPrune(retention.Report{Announced: 2})
	r.MustAudit()
	of := func(s postadjudication.Submitted) string { return ` WHERE run_id = '` + s.Run.String() + `'` }
	named := func(s postadjudication.Submitted) string { return "letter " + s.Run.String() + " of acme: stored " }
	rig.CheckAuditDetects(r, "a hold is taken away", `UPDATE recourse.annotations SET held = false, hold_reason = ''`+of(held), `UPDATE recourse.annotations SET held = true, hold_reason = '`+holdReason+`'`+of(held),
		named(held)+"held false")
	rig.CheckAuditDetects(r, "a hold has another reason", `UPDATE recourse.annotations SET hold_reason = 'other'`+of(held), `UPDATE recourse.annotations SET hold_reason = '`+holdReason+`'`+of(held), named(held))
	rig.CheckAuditDetects(r, "a letter is held", `UPDATE recourse.annotations SET held = true, hold_reason = 'x'`+of(marked), `UPDATE recourse.annotations SET held = false, hold_reason = ''`+of(marked), named(marked)+"held true")
	rig.CheckAuditDetects(r, "a mark is turned", `UPDATE recourse.annotations SET reprocess_eligible = false`+of(marked), `UPDATE recourse.annotations SET reprocess_eligible = true`+of(marked),
		named(marked)+"mark reprocess_eligible false, the receipts say true")
	rig.CheckAuditDetects(r, "a mark is taken away", `UPDATE recourse.annotations SET manual_review_required = NULL`+of(marked), `UPDATE recourse.annotations SET manual_review_required = false`+of(marked), named(marked)+"mark manual_review_required nothing, the receipts say false")
	rig.CheckAuditDetects(r, "the end is moved", `UPDATE recourse.annotations SET ends_at = ends_at - interval '1 day'`+of(plain), `UPDATE recourse.annotations SET ends_at = ends_at + interval '1 day'`+of(plain), named(plain))
	rig.CheckAuditDetects(r, "annotations are removed", `CREATE TABLE recourse.stolen AS SELECT * FROM recourse.annotations`+of(held)+`; DELETE FROM recourse.annotations`+of(held), `INSERT INTO recourse.annotations SELECT * FROM recourse.stolen`, named(held))
	rig.CheckAuditDetects(r, "a purged letter has annotations", `INSERT INTO recourse.annotations (run_id, tenant, held, hold_reason) VALUES ('`+gone.Run.String()+`', 'acme', true, 'x')`, `DELETE FROM recourse.annotations`+of(gone), named(gone)+"held true")
	never := uuid.New().String()
	rig.CheckAuditDetects(r, "annotations of an unknown run", `INSERT INTO recourse.annotations (run_id, tenant, held, hold_reason) VALUES ('`+never+`', 'acme', true, 'x')`, `DELETE FROM recourse.annotations WHERE run_id = '`+never+`'`,
		"letter "+never+" of acme is held, marked or announced, and no receipt says so")
}

// The audit detects a key with more roles than in its receipt, a key whose revocation was
// undone, and a key without a receipt, and names the key.
func TestAKeyThatIsNotWhatItsReceiptsSayIsFound(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	mint := func(principal string, roles ...postadjudication.AccessRole) postadjudication.AccessKey {
		t.Helper()
		_, k, err := r.As("acme", "user:root").Keys.Create(ctx, postadjudication.NewKey{Principal: principal, Roles: roles, ExpiresAt: r.Now().Add(day), Reason: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	valid, revoked := mint("user:ada", access.Auditor), mint("user:bob", access.Operator, access.Approver)
	if _, err := r.As("acme", "user:root").Keys.Revoke(ctx, revoked.Prefix, "left"); err != nil {
		t.Fatal(err)
	}
	r.MustAudit()
	of := func(k postadjudication.AccessKey) string { return ` WHERE prefix = '` + k.Prefix + `'` }
	named := func(k postadjudication.AccessKey) string { return "the access key " + k.Prefix + " of acme: stored " }
	rig.CheckAuditDetects(r, "roles", `UPDATE recourse.keys SET roles = '{auditor,admin}'`+of(valid), `UPDATE recourse.keys SET roles = '{auditor}'`+of(valid), named(valid)+"terms user:ada as auditor+admin")
	rig.CheckAuditDetects(r, "queues", `UPDATE recourse.keys SET queues = '{payouts}'`+of(valid), `UPDATE recourse.keys SET queues = '{}'`+of(valid), named(valid)+"terms user:ada as auditor of payouts")
	rig.CheckAuditDetects(r, "secret", `CREATE TABLE recourse.made AS SELECT prefix, digest FROM recourse.keys`+of(valid)+`; UPDATE recourse.keys SET digest = sha256('rck_forged')`+of(valid),
		`UPDATE recourse.keys k SET digest = s.digest FROM recourse.made s WHERE s.prefix = k.prefix`, named(valid)+"digest of the secret")
	rig.CheckAuditDetects(r, "principal", `UPDATE recourse.keys SET principal = 'user:eve'`+of(valid), `UPDATE recourse.keys SET principal = 'user:ada'`+of(valid), named(valid)+"terms user:eve")
	rig.CheckAuditDetects(r, "end", `UPDATE recourse.keys SET expires_at = expires_at + interval '1 day'`+of(valid), `UPDATE recourse.keys SET expires_at = expires_at - interval '1 day'`+of(valid), named(valid))
	rig.CheckAuditDetects(r, "brought back", `CREATE TABLE recourse.was AS SELECT prefix, revoked_at, revoked_by FROM recourse.keys`+of(revoked)+`; UPDATE recourse.keys SET revoked_at = NULL, revoked_by = ''`+of(revoked),
		`UPDATE recourse.keys k SET revoked_at = w.revoked_at, revoked_by = w.revoked_by FROM recourse.was w WHERE w.prefix = k.prefix`, named(revoked)+"revoked false")
	rig.CheckAuditDetects(r, "revoked without a receipt", `UPDATE recourse.keys SET revoked_at = created_at, revoked_by = 'user:eve'`+of(valid), `UPDATE recourse.keys SET revoked_at = NULL, revoked_by = ''`+of(valid), named(valid)+"revoked true")
	rig.CheckAuditDetects(r, "made without a receipt", `INSERT INTO recourse.keys (id, prefix, digest, tenant, principal, roles, created_at, created_by)
		SELECT gen_random_uuid(), 'aaaaaaaaaaaa', sha256('x'), tenant, principal, roles, created_at, created_by FROM recourse.keys`+of(valid), `DELETE FROM recourse.keys WHERE prefix = 'aaaaaaaaaaaa'`,
		"the access key aaaaaaaaaaaa of acme: no receipt says that it was made")
	rig.CheckAuditDetects(r, "gone", `CREATE TABLE recourse.stolen AS SELECT * FROM recourse.keys`+of(valid)+`; DELETE FROM recourse.keys`+of(valid), `INSERT INTO recourse.keys SELECT * FROM recourse.stolen`,
		"the access key "+valid.Prefix+" of acme was made by receipt")
}
