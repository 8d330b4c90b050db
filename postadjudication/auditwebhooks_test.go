package postadjudication_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

// withWebhooks lets webhooks be created, also with addresses of this machine.
func withWebhooks(t testing.TB) func(*postadjudication.Config) {
	t.Helper()
	keys, err := webhooks.ParseKeys("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if err != nil {
		t.Fatal(err)
	}
	return func(c *postadjudication.Config) {
		c.Webhooks = webhooks.Config{Keys: keys, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	}
}

// nobodyListens is a URL that refuses connections.
const nobodyListens = "http://127.0.0.1:1/hooks"

// mustWebhook creates a webhook of the tenant acme.
func mustWebhook(r *rig.Rig) webhooks.Webhook {
	r.T.Helper()
	w, _, err := r.As("acme", "user:ada").Webhooks.Create(context.Background(), webhooks.New{URL: nobodyListens, Types: []events.Type{events.RunForked}, Description: "the ledger", Reason: "to follow the forks"})
	if err != nil {
		r.T.Fatal(err)
	}
	return w
}

// webhooksWithHistories leaves an active webhook whose secret was rotated and whose position was set, a
// paused one, and a deleted one, and all receipts in the order of events.
func webhooksWithHistories(t *testing.T) (r *rig.Rig, active, paused, deleted webhooks.Webhook) {
	t.Helper()
	r = rig.New(t, withWebhooks(t))
	ctx, all := context.Background(), r.As("acme", "user:bob").Webhooks
	must := func(_ webhooks.Webhook, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	active, paused, deleted = mustWebhook(r), mustWebhook(r), mustWebhook(r)
	if err := r.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, err := all.Rotate(ctx, active.ID, "", 48*time.Hour, "it was in a log"); err != nil {
		t.Fatal(err)
	}
	must(all.Replay(ctx, active.ID, 9, "they lost some"))
	must(all.Pause(ctx, paused.ID, "they move"))
	must(all.Resume(ctx, paused.ID, "they have moved"))
	must(all.Pause(ctx, paused.ID, "not yet"))
	must(all.Delete(ctx, deleted.ID, "no more"))
	if err := r.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	r.MustAudit()
	return r, active, paused, deleted
}

// Why the audit does not compare these columns: nothing about them is in a receipt.
var unauditedWebhookColumns = map[string]string{
	"webhook_positions.delivered_at":  "receipts do not tell when events were delivered",
	"webhook_positions.failures":      "likewise of failures; these are those of now",
	"webhook_positions.failing_since": "likewise",
	"webhook_positions.last_failure":  "likewise",
}

// Each column of a webhook and of its position that receipts determine matches them, or the audit
// names it. A position that would skip events is found.
func TestTheAuditFindsEveryChangeOfAWebhook(t *testing.T) {
	t.Parallel()
	r, active, paused, deleted := webhooksWithHistories(t)
	ctx := context.Background()
	of := func(w webhooks.Webhook) string { return ` WHERE id = '` + w.ID.String() + `'` }
	at := func(w webhooks.Webhook) string { return ` WHERE webhook_id = '` + w.ID.String() + `'` }
	compared := map[string]bool{}
	for _, c := range []struct{ table, column, harm, word string }{
		{"webhooks", "id", `UPDATE recourse.webhooks SET id = gen_random_uuid()` + of(active), "no receipt says so"},
		{"webhooks", "tenant", `UPDATE recourse.webhooks SET tenant = 'stranger'` + of(active), "no receipt says so"},
		{"webhooks", "version", `UPDATE recourse.webhooks SET version = 2` + of(active), "stored version 2, the receipts say 3"},
		{"webhooks", "state", `UPDATE recourse.webhooks SET state = 'active'` + of(paused), "stored state active, the receipts say paused"},
		{"webhooks", "definition", `UPDATE recourse.webhooks SET definition = replace(definition, '127.0.0.1', '127.0.0.2')` + of(active), "stored definition"},
		{"webhooks", "secret", `UPDATE recourse.webhooks SET secret = former_secret` + of(active), "stored secret"},
		{"webhooks", "secret", `UPDATE recourse.webhooks SET secret = set_byte(secret, 10, 255 - get_byte(secret, 10))` + of(paused), "stored secret"},
		{"webhooks", "former_secret", `UPDATE recourse.webhooks SET former_secret = secret` + of(active), "stored former secret"},
		{"webhooks", "former_until", `UPDATE recourse.webhooks SET former_until = former_until + interval '1 year'` + of(active), "stored rotation of the secret"},
		{"webhooks", "former_until", `UPDATE recourse.webhooks SET former_until = NULL, former_secret = NULL` + of(active), "stored rotation of the secret"},
		{"webhooks", "former_until", `UPDATE recourse.webhooks SET former_until = now(), former_secret = secret` + of(paused), "stored rotation of the secret"},
		{"webhooks", "created_at", `UPDATE recourse.webhooks SET created_at = created_at - interval '1 hour'` + of(active), "stored time of creation"},
		{"webhooks", "created_by", `UPDATE recourse.webhooks SET created_by = 'user:eve'` + of(active), "stored creator user:eve, the receipts say user:ada"},
		{"webhooks", "changed_at", `UPDATE recourse.webhooks SET changed_at = changed_at - interval '1 hour'` + of(deleted), "stored time of the last change"},
		{"webhooks", "changed_by", `UPDATE recourse.webhooks SET changed_by = 'user:eve'` + of(deleted), "stored who changed it last user:eve"},
		{"webhooks", "reason", `UPDATE recourse.webhooks SET reason = 'framed'` + of(paused), "stored reason framed, the receipts say not yet"},
		{"webhook_positions", "webhook_id", `UPDATE recourse.webhook_positions SET webhook_id = gen_random_uuid()` + at(active), "has no position"},
		{"webhook_positions", "tenant", `UPDATE recourse.webhook_positions SET tenant = 'stranger'` + at(active), "which is not stored"},
		{"webhook_positions", "version", `UPDATE recourse.webhook_positions SET version = 9` + at(active), "stored version of its position 9, the receipts say 2"},
		{"webhook_positions", "read_to", `UPDATE recourse.webhook_positions SET read_to = (SELECT max(tenant_last) * 8 + 8 FROM recourse.event_log)` + at(active), "it would miss events"},
		{"webhook_positions", "pending", `UPDATE recourse.webhook_positions SET pending = ARRAY[read_to + 1]` + at(active), "has pending events"},
		{"webhook_positions", "pending", `UPDATE recourse.webhook_positions SET read_to = 9, pending = ARRAY[8, 8]` + at(active), "has pending events"},
		{"webhook_positions", "pending", `UPDATE recourse.webhook_positions SET pending = ARRAY[NULL::bigint]` + at(active), "has pending events"},
		{"webhook_positions", "delivered", `UPDATE recourse.webhook_positions SET delivered = 1` + at(active), "0 must have been delivered, and stored are 1"},
		{"webhooks", "", `DELETE FROM recourse.webhooks` + of(deleted), "but not stored"},
		{"webhook_positions", "", `DELETE FROM recourse.webhook_positions` + at(deleted), "has no position"},
		{"webhooks", "", `INSERT INTO recourse.webhooks SELECT (jsonb_populate_record(w, '{"id": "00000000-0000-7000-8000-000000000001"}')).* FROM recourse.webhooks w` + of(active), "no receipt says so"},
		{"webhooks", "", `INSERT INTO recourse.webhooks SELECT (jsonb_populate_record(w, '{"id": "00000000-0000-7000-8000-000000000001", "tenant": "stranger"}')).* FROM recourse.webhooks w` + of(active), "webhook 00000000-0000-7000-8000-000000000001 of stranger was made, and no receipt says so"},
	} {
		compared[c.table+"."+c.column] = true
		testkit.Tamper(t, r.DB, `CREATE TABLE kept AS TABLE recourse.`+c.table, c.harm)
		a, err := r.Audit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, b := range a.Breaks {
			found = found || b.Invariant == audit.InvariantFold && strings.Contains(b.What, c.word)
		}
		if !found {
			t.Errorf("%s: %+v", c.harm, a.Breaks)
		}
		testkit.Tamper(t, r.DB, `DELETE FROM recourse.`+c.table, `INSERT INTO recourse.`+c.table+` TABLE kept`, `DROP TABLE kept`)
	}
	for _, table := range []string{"webhooks", "webhook_positions"} {
		for column := range strings.SplitSeq(storedColumns(t, r.DB, table), ", ") {
			if name := table + "." + column; !compared[name] && unauditedWebhookColumns[name] == "" {
				t.Errorf("no change of %s is found, and it is not said why", name)
			}
		}
	}
	r.MustAudit()
}

// A webhook at the newest position has read everything: that is no finding where it gets none of the events.
func TestAWebhookThatHasReadEverythingIsNoFinding(t *testing.T) {
	t.Parallel()
	r, _, _, _ := webhooksWithHistories(t)
	testkit.Tamper(t, r.DB, `UPDATE recourse.webhook_positions SET read_to = (SELECT max(tenant_last) * 8 + 7 FROM recourse.event_log)`)
	r.MustAudit()
}

// What a webhook may not do is found in the receipts alone, also in a file: a resume that nobody
// recorded, another URL, a change after the deletion.
func TestReceiptsOfWebhooksThatMayNotFollowAreFoundInAFile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for what, c := range map[string]struct {
		change func([]receipts.Draft) []receipts.Draft
		word   string
	}{
		"nothing":                 {func(ds []receipts.Draft) []receipts.Draft { return ds }, ""},
		"the creation is missing": {func(ds []receipts.Draft) []receipts.Draft { return ds[1:] }, "creation is the first change and no other"},
		"created twice":           {func(ds []receipts.Draft) []receipts.Draft { return append(ds, ds[0]) }, "creation is the first change and no other"},
		"another URL": {func(ds []receipts.Draft) []receipts.Draft {
			return changeEach(receipts.WebhookChanged, func(d *receipts.Draft) {
				if d.Payload.AskedFor == "replay" {
					d.Payload.Webhook = strings.Replace(d.Payload.Webhook, "hooks", "mallory", 1)
				}
			})(ds)
		}, "another URL, types or description"},
		"another state": {func(ds []receipts.Draft) []receipts.Draft {
			return changeEach(receipts.WebhookChanged, func(d *receipts.Draft) {
				if d.Payload.AskedFor == "replay" {
					d.Payload.Webhook = strings.Replace(d.Payload.Webhook, `"active"`, `"paused"`, 1)
				}
			})(ds)
		}, `the state "paused" in place of "active"`},
		"a change after the deletion": {func(ds []receipts.Draft) []receipts.Draft {
			last := ds[len(ds)-1]
			last.Payload.AskedFor = "resume"
			return append(ds, last)
		}, "of a webhook that was deleted"},
		"a replay that does not say where": {changeEach(receipts.WebhookChanged, func(d *receipts.Draft) {
			if d.Payload.AskedFor == "replay" {
				d.Payload.WebhookPosition = nil
			}
		}), "whether it set a position: false"},
		"another secret after a pause": {changeEach(receipts.WebhookChanged, func(d *receipts.Draft) {
			if d.Payload.AskedFor == "pause" {
				d.Payload.ContentDigest = strings.Repeat("0", 64)
			}
		}), "another secret than the one before"},
		"no secret after a rotation": {changeEach(receipts.WebhookChanged, func(d *receipts.Draft) {
			if d.Payload.AskedFor == "rotate" {
				d.Payload.ContentDigest = ""
			}
		}), "whether the webhook has a secret: false"},
		"an unknown change": {func(ds []receipts.Draft) []receipts.Draft {
			ds[len(ds)-1].Payload.AskedFor = "melt"
			return ds
		}, "which is no change of a webhook"},
		"a definition that is no JSON": {func(ds []receipts.Draft) []receipts.Draft {
			ds[0].Payload.Webhook = "{"
			return ds
		}, "a definition that can't be read"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r, _, _, _ := webhooksWithHistories(t)
			s := &tamperedDatabase{Rig: r, cases: map[string]receipts.CaseID{}}
			var log string
			if err := r.DB.QueryRow(`SELECT case_id FROM recourse.operation_logs WHERE tenant = 'acme' AND subject = 'webhooks'`).Scan(&log); err != nil {
				t.Fatal(err)
			}
			id, err := receipts.ParseCaseID(log)
			if err != nil {
				t.Fatal(err)
			}
			s.cases["log"] = id
			testkit.Tamper(t, r.DB, s.rewriteTrailSQL("log", c.change)...)
			path := filepath.Join(t.TempDir(), "receipts.jsonl")
			to, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := audit.WriteFile(ctx, r.AuditReader(), nil, to); err != nil {
				t.Fatal(err)
			}
			if err := to.Close(); err != nil {
				t.Fatal(err)
			}
			file, err := audit.OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			for name, reader := range map[string]audit.ReceiptReader{"file": file, "database": r.AuditReader()} {
				a, err := audit.Run(ctx, reader, audit.Query{})
				if err != nil {
					t.Fatal(err)
				}
				found := c.word == "" && a.OK()
				for _, b := range a.Breaks {
					found = found || c.word != "" && b.Receipt != "" && strings.Contains(b.What, c.word)
				}
				if !found {
					t.Errorf("%s: %+v", name, a.Breaks)
				}
			}
		})
	}
}
