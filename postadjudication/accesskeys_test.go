package postadjudication_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

func newKey() postadjudication.NewKey {
	return postadjudication.NewKey{Principal: "user:ada", Roles: []access.Role{access.Operator, access.Auditor}, Reason: "on call"}
}

// operationLog reads the trail of a tenant's operation log, as "subtype actor" lines.
func operationLog(r *rig.Rig, tenant, subject string) (lines []string) {
	r.T.Helper()
	rows, err := r.DB.Query(`SELECT r.subtype || ' ' || r.actor || ' ' || r.body FROM recourse.receipts r JOIN recourse.operation_logs g ON g.case_id = r.case_id
		WHERE g.tenant = $1 AND g.subject = $2 ORDER BY r.seq`, tenant, subject)
	if err != nil {
		r.T.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			r.T.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		r.T.Fatal(err)
	}
	return lines
}

func TestAKeyOpensUntilItIsRevokedAndLeavesItsReceipts(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	token, k := rig.MustKey(r, "acme", newKey())
	store := r.KeyStore()
	found, err := store.FindKey(ctx, k.Prefix)
	if err != nil || found.Authenticate(token, time.Now()) != nil || found.Tenant != "acme" || found.Principal != "user:ada" || !access.May(found.Roles, access.Fork) || found.LastUsed != nil {
		t.Fatalf("%+v, %v", found, err)
	}
	if _, err := store.FindKey(ctx, "aaaaaaaaaaaa"); !errors.Is(err, access.ErrUnknown) {
		t.Errorf("%v", err)
	}
	if n := r.Count(`SELECT count(*) FROM recourse.keys k WHERE k::text LIKE '%' || $1 || '%'`, token[16:]); n != 0 {
		t.Error("the secret is stored")
	}
	if _, err := r.As("other", "user:eve").Keys.Revoke(ctx, k.Prefix, "mine"); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	gone, err := r.As("acme", "user:root").Keys.Revoke(ctx, k.Prefix, "left us")
	if err != nil || gone.RevokedBy != "user:root" || gone.RevokedAt == nil {
		t.Fatalf("%+v, %v", gone, err)
	}
	again, err := r.As("acme", "user:bob").Keys.Revoke(ctx, k.Prefix, "also")
	if err != nil || again.RevokedBy != "user:root" || !again.RevokedAt.Equal(*gone.RevokedAt) {
		t.Errorf("%+v, %v", again, err)
	}
	if found, err = store.FindKey(ctx, k.Prefix); err != nil || !errors.Is(found.Authenticate(token, time.Now()), access.ErrRevoked) {
		t.Errorf("%+v, %v", found, err)
	}
	lines := operationLog(r, "acme", "keys")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "key-created user:root") || !strings.Contains(lines[0], "operator+auditor until "+k.ExpiresAt.Format(time.RFC3339)) ||
		!strings.HasPrefix(lines[1], "key-revoked user:root") || !strings.Contains(lines[1], "left us") || strings.Contains(strings.Join(lines, ""), token[16:]) {
		t.Errorf("%v", lines)
	}
	if a := r.MustAudit(); a.Chains != 1 || a.Receipts != 2 {
		t.Errorf("%+v", a)
	}
}

func TestAKeyEndsByItselfUnlessItIsSaidWhyNot(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	const day = 24 * time.Hour
	for _, c := range []struct {
		change func(*acting, *postadjudication.NewKey)
		lasts  time.Duration // 0: never expires
		wrong  string        // refused field
	}{
		{func(*acting, *postadjudication.NewKey) {}, 90 * day, ""},
		{func(who *acting, n *postadjudication.NewKey) { n.Principal = "service:desk" }, 400 * day, ""},
		{func(who *acting, n *postadjudication.NewKey) { n.NeverExpires = "a locked device" }, 0, ""},
		{func(who *acting, n *postadjudication.NewKey) { n.NeverExpires = "a\nb" }, 0, "never_expires"},
		{func(who *acting, n *postadjudication.NewKey) {
			n.NeverExpires, n.ExpiresAt = "a locked device", time.Now().Add(day)
		}, 0, "expires_at"},
		{func(who *acting, n *postadjudication.NewKey) { n.ExpiresAt = time.Now().Add(729 * day) }, 729 * day, ""},
		{func(who *acting, n *postadjudication.NewKey) { n.ExpiresAt = time.Now().Add(731 * day) }, 0, "expires_at"},
	} {
		n := newKey()
		who := acting{"acme", "user:root"}
		c.change(&who, &n)
		_, k, err := r.As(who.tenant, who.actor).Keys.Create(context.Background(), n)
		var bad *refusal.FieldError
		switch {
		case c.wrong != "":
			if !errors.As(err, &bad) || bad.Field != c.wrong {
				t.Errorf("%+v: %v, want %s", n, err, c.wrong)
			}
		case err != nil:
			t.Errorf("%+v: %v", n, err)
		case c.lasts == 0 && k.ExpiresAt != nil, c.lasts != 0 && (k.ExpiresAt == nil || k.ExpiresAt.Sub(k.CreatedAt).Round(time.Hour) != c.lasts):
			t.Errorf("%+v: made %s, ends %v", n, k.CreatedAt, k.ExpiresAt)
		}
	}
	if lines := operationLog(r, "acme", "keys"); len(lines) != 4 || !strings.Contains(lines[2], "on call; never expires: a locked device") || !strings.Contains(lines[2], "for ever") {
		t.Errorf("%v", lines)
	}
	r.MustAudit()
}

func TestASuccessorOpensBesideTheKeyThatItReplaces(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	token, old := rig.MustKey(r, "acme", newKey())
	rotation := postadjudication.KeyRotation{Prefix: old.Prefix, Reason: "ends soon"}
	next, k, err := r.As("acme", "user:root").Keys.Rotate(ctx, rotation)
	if err != nil || k.SuccessorOf != old.Prefix || k.Principal != old.Principal || binding.RoleText(k.Roles) != binding.RoleText(old.Roles) || next == token {
		t.Fatalf("%+v, %v", k, err)
	}
	for _, shown := range []string{token, next} {
		prefix, _ := access.Prefix(shown)
		if found, err := r.KeyStore().FindKey(ctx, prefix); err != nil || found.Authenticate(shown, time.Now()) != nil {
			t.Errorf("%+v, %v", found, err)
		}
	}
	for _, change := range []func(*acting, *postadjudication.KeyRotation){func(who *acting, q *postadjudication.KeyRotation) { who.tenant = "other" }, func(who *acting, q *postadjudication.KeyRotation) { who.tenant = "" }, func(who *acting, q *postadjudication.KeyRotation) { q.Prefix = "aaaaaaaaaaaa" }} {
		foreign := rotation
		who := acting{"acme", "user:root"}
		change(&who, &foreign)
		if _, _, err := r.As(who.tenant, who.actor).Keys.Rotate(ctx, foreign); !errors.Is(err, refusal.ErrNotFound) {
			t.Errorf("%+v: %v", foreign, err)
		}
	}
	if _, err := r.As("acme", "user:root").Keys.Revoke(ctx, old.Prefix, "replaced"); err != nil {
		t.Fatal(err)
	}
	var bad *refusal.FieldError
	if _, _, err := r.As("acme", "user:root").Keys.Rotate(ctx, rotation); !errors.As(err, &bad) || bad.Field != "prefix" {
		t.Errorf("the successor of a revoked key: %v", err)
	}
	if n := r.CountRows("keys"); n != 2 {
		t.Errorf("%d keys", n)
	}
	r.MustAudit()
	if _, err := r.DB.Exec(`UPDATE recourse.keys SET successor_of = '' WHERE prefix = $1`, k.Prefix); err != nil {
		t.Fatal(err)
	}
	if a, err := r.Audit(ctx, "acme"); err != nil || a.OK() {
		t.Errorf("the audit accepts a key whose predecessor was removed from its row: %v, %v", a, err)
	}
}

// Nobody pays and decides in one tenant, by one key or by two, and not by two that are made at once. What has ended
// and other tenants count for nothing. Keys of before are named.
func TestNobodyPaysAndDecides(t *testing.T) {
	t.Parallel()
	const payouts = "payouts"
	r := rig.New(t, func(c *postadjudication.Config) { c.PaymentQueues = []string{payouts} }).StartWorkers()
	poll.Until(t, "the payment queue is recorded", func() bool { return r.CountRows("targets") == 2 })
	ctx := context.Background()
	payer := postadjudication.NewKey{Principal: "user:pay", Roles: []access.Role{access.Worker}, Queues: []string{"pay*"}, Reason: "pays"}
	decider := newKey()
	decider.Principal = "user:PAY"
	both := payer
	both.Roles = []access.Role{access.Worker, access.Submitter}
	create := func(tenant string, n postadjudication.NewKey) (access.Key, error) {
		_, k, err := r.As(tenant, "root").Keys.Create(ctx, n)
		return k, err
	}
	refused := func(what string, err error) {
		t.Helper()
		if mixed := (*access.DutiesError)(nil); !errors.As(err, &mixed) || mixed.Queue != payouts {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := create("acme", both)
	refused("one key", err)
	for _, pair := range [][2]postadjudication.NewKey{{payer, decider}, {decider, payer}} {
		_, first := rig.MustKey(r, "acme", pair[0])
		_, err := create("acme", pair[1])
		refused("the second key", err)
		if _, err := create("other", pair[1]); err != nil {
			t.Errorf("of another tenant: %v", err)
		}
		if k := r.CountRows("keys"); k == 0 || !slices.Equal(first.Queues, pair[0].Queues) {
			t.Errorf("%d keys, %v", k, first.Queues)
		}
		_, next, err := r.As("acme", "root").Keys.Rotate(ctx, postadjudication.KeyRotation{Prefix: first.Prefix, Reason: "ends soon"})
		if err != nil || !slices.Equal(next.Queues, first.Queues) {
			t.Errorf("the successor: %v, %v", next.Queues, err)
		}
		for _, k := range []access.Key{first, next} {
			if _, err := r.As("acme", "root").Keys.Revoke(ctx, k.Prefix, "test"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.DB.Exec(`DELETE FROM recourse.keys WHERE tenant = 'other'`); err != nil {
			t.Fatal(err)
		}
	}
	var atOnce sync.WaitGroup
	var made atomic.Int32
	for _, n := range []postadjudication.NewKey{payer, decider} {
		atOnce.Go(func() {
			if _, err := create("acme", n); err == nil {
				made.Add(1)
			} else {
				refused("at once", err)
			}
		})
	}
	atOnce.Wait()
	if made.Load() != 1 {
		t.Errorf("%d keys were made at once", made.Load())
	}
	if mixed, err := r.Health().MixedDuties(ctx); err != nil || len(mixed) > 0 {
		t.Errorf("%v, %v", mixed, err)
	}
	if _, err := r.DB.Exec(`UPDATE recourse.keys SET revoked_at = NULL, revoked_by = ''`); err != nil {
		t.Fatal(err)
	}
	if mixed, err := r.Health().MixedDuties(ctx); err != nil || len(mixed) == 0 {
		t.Errorf("keys of before: %v, %v", mixed, err)
	}
}

func TestKeysOfATenantAreItsOwn(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	_, first := rig.MustKey(r, "acme", newKey())
	_, second := rig.MustKey(r, "acme", newKey())
	rig.MustKey(r, "other", newKey())
	got, err := r.As("acme", "").Keys.List(context.Background())
	if err != nil || len(got) != 2 || got[0].ID != first.ID || got[1].ID != second.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.As("", "").Keys.List(context.Background()); err != nil || len(got) != 0 {
		t.Errorf("no tenant: %+v, %v", got, err)
	}
}

func TestAKeyThatNamesTooLittleIsRefusedNamingTheField(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for field, change := range map[string]func(*acting, *postadjudication.NewKey){
		"tenant": func(who *acting, n *postadjudication.NewKey) { who.tenant = "" }, "principal": func(who *acting, n *postadjudication.NewKey) { n.Principal = "system:retention" }, "actor": func(who *acting, n *postadjudication.NewKey) { who.actor = "" },
		"reason": func(who *acting, n *postadjudication.NewKey) { n.Reason = "a\nb" }, "roles": func(who *acting, n *postadjudication.NewKey) { n.Roles = nil }, "expires_at": func(who *acting, n *postadjudication.NewKey) { n.ExpiresAt = time.Now().Add(-time.Hour) },
	} {
		n := newKey()
		who := acting{"acme", "user:root"}
		change(&who, &n)
		var bad *refusal.FieldError
		if _, _, err := r.As(who.tenant, who.actor).Keys.Create(context.Background(), n); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := r.CountRows("keys"); n != 0 {
		t.Errorf("%d keys", n)
	}
}

func TestKeysMadeAtOnceAllHaveTheirReceipts(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			for { // retries Busy: few requests may be on the slow path at once
				_, _, err := r.As("acme", "user:root").Keys.Create(context.Background(), newKey())
				if !errors.Is(err, background.ErrBusy) {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	all.Wait()
	if n := len(operationLog(r, "acme", "keys")); n != 12 {
		t.Errorf("%d receipts", n)
	}
	r.MustAudit()
}

func TestAUseIsNotedToTheMinute(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	_, k := rig.MustKey(r, "acme", newKey())
	at := r.Now()
	for _, later := range []time.Duration{0, 59 * time.Second, 61 * time.Second, 30 * time.Second} {
		if err := r.KeyStore().UseKey(context.Background(), k.ID, at.Add(later)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.As("acme", "").Keys.List(context.Background())
	if err != nil || got[0].LastUsed == nil || !got[0].LastUsed.Equal(at.Add(61*time.Second)) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestARefusalIsToldInTheCaseIfTheTenantHasIt(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	s := r.MustSubmit(rig.Release(1))
	stranger := background.RunID(uuid.New())
	refused := postadjudication.AccessRefusal{Tenant: "acme", Actor: "user:ada", Action: "fork", Code: "role_missing"}
	for _, tc := range []struct {
		change func(*postadjudication.AccessRefusal)
		in     string // log of the receipt
	}{
		{func(a *postadjudication.AccessRefusal) { a.Run = s.Run }, "case"},
		{func(a *postadjudication.AccessRefusal) { a.Case = s.Case }, "case"},
		{func(*postadjudication.AccessRefusal) {}, "acme"},
		{func(a *postadjudication.AccessRefusal) { a.Run = stranger }, "acme"},
		{func(a *postadjudication.AccessRefusal) { a.Run, a.Tenant = s.Run, "other" }, "other"},
		{func(a *postadjudication.AccessRefusal) { a.Case, a.Tenant = s.Case, "other" }, "other"},
	} {
		a := refused
		tc.change(&a)
		before := map[string]int{
			"case": r.CountReceipts(rig.Receipts{Case: s.Case, Subtype: receipts.Refused}),
			"acme": len(operationLog(r, "acme", "refusals")), "other": len(operationLog(r, "other", "refusals")),
		}
		if err := r.RecordRefusal(ctx, a); err != nil {
			t.Fatal(err)
		}
		after := map[string]int{
			"case": r.CountReceipts(rig.Receipts{Case: s.Case, Subtype: receipts.Refused}),
			"acme": len(operationLog(r, "acme", "refusals")), "other": len(operationLog(r, "other", "refusals")),
		}
		before[tc.in]++
		for where, n := range after {
			if n != before[where] {
				t.Errorf("%+v: %d receipts in %s, want %d", a, n, where, before[where])
			}
		}
	}
	trail, err := r.Receipts(ctx, "acme", s.Case, 1, 10)
	if err != nil || len(trail) != 2 || trail[0].Run != s.Run || trail[0].Actor != "user:ada" {
		t.Fatalf("%+v, %v", trail, err)
	}
	if p, err := trail[0].Payload(); err != nil || p.AskedFor != "fork" || p.RefusedBy != "role_missing" || trail[0].Subtype != receipts.Refused {
		t.Errorf("%+v, %v", p, err)
	}
	r.StartWorkers().WaitNoneLive() // the refusals did not affect the run
	if c := r.CaseOf(rig.Release(1)); !c.Progression.Ended() {
		t.Errorf("%s", c.Progression)
	}
	r.MustAudit()
}

func TestARequestIsWorkedOnOnceAndItsAnswerRepeated(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Microsecond)
	clock := now
	r := rig.New(t, func(c *postadjudication.Config) { c.Simulated = true; c.Now = func() time.Time { return clock } })
	ctx := context.Background()
	same, other := [32]byte{1}, [32]byte{2}
	begin := func(tenant string, digest [32]byte) (*postadjudication.StoredResponse, *postadjudication.IdempotentRequest, error) {
		return r.BeginRequest(ctx, tenant, "k1", digest)
	}
	_, mine, err := begin("acme", same)
	if err != nil || mine == nil {
		t.Fatalf("%v, %v", mine, err)
	}
	if _, _, err := begin("acme", same); !errors.Is(err, postadjudication.ErrRequestBusy) {
		t.Errorf("again: %v", err)
	}
	if begun, err := mine.BeginAgain(ctx, now); err != nil || !begun {
		t.Errorf("the same request after a lost answer: %v, %v", begun, err)
	}
	if _, _, err := begin("acme", other); !errors.Is(err, postadjudication.ErrRequestMismatch) {
		t.Errorf("another: %v", err)
	}
	if _, own, err := begin("other", other); err != nil || own == nil {
		t.Errorf("another tenant: %v", err)
	}
	clock = now.Add(postadjudication.RequestTimeout + time.Second) // the first request has timed out
	if _, _, err := begin("acme", other); !errors.Is(err, postadjudication.ErrRequestMismatch) {
		t.Errorf("another, later: %v", err)
	}
	_, heir, err := begin("acme", same)
	if err != nil || heir == nil {
		t.Fatalf("taken over: %v, %v", heir, err)
	}
	if err := mine.Answer(ctx, postadjudication.StoredResponse{Status: 200, Body: []byte("late")}); err != nil {
		t.Fatal(err)
	}
	if err := mine.Drop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := heir.Answer(ctx, postadjudication.StoredResponse{Status: 201, Headers: "{}", Body: []byte("made")}); err != nil {
		t.Fatal(err)
	}
	if err := heir.Drop(ctx); err != nil { // no effect on an answered request
		t.Fatal(err)
	}
	before, none, err := begin("acme", same)
	if err != nil || none != nil || before.Status != 201 || string(before.Body) != "made" || before.Headers != "{}" {
		t.Errorf("%+v, %v, %v", before, none, err)
	}
	clock = clock.Add(postadjudication.RequestRetention + time.Second)
	_, fresh, err := begin("acme", other)
	if err != nil || fresh == nil {
		t.Fatalf("a day later: %v", err)
	}
	if err := fresh.Drop(ctx); err != nil {
		t.Fatal(err)
	}
	if n := r.CountRows("requests"); n != 0 {
		t.Errorf("%d requests are stored", n)
	}
	if _, _, err := r.BeginRequest(ctx, "", "k", same); err == nil {
		t.Error("no tenant")
	}
}
