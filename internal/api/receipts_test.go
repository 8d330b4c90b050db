package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

// A page of receipts is bounded by bytes, too: it ends before its limit, and the next one continues it.
func TestAPageOfReceiptsIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	run := r.letter("acme", 1, `"refused"`)
	const long, size = 150, 60_000
	var caseID string
	if err := r.db.QueryRow(`INSERT INTO recourse.receipts (case_id, seq, run_id, tenant, source, subtype, actor, at, body, link)
		SELECT case_id, seq + n, run_id, tenant, source, subtype, actor, at, jsonb_set(body::jsonb, '{payload,text}', to_jsonb(repeat('x', $2::int)))::text, link
		FROM (SELECT * FROM recourse.receipts WHERE run_id = $1 ORDER BY seq DESC LIMIT 1) last, generate_series(1, $3::int) n RETURNING case_id`, run, size, long).Scan(&caseID); err != nil {
		t.Fatal(err)
	}
	auditor := r.key("acme", access.Auditor)
	pages, seen := 0, 0.0
	for more := true; more; pages++ {
		a := r.ask(auditor, http.MethodGet, fmt.Sprintf("/api/v1/cases/%s/receipts?limit=1000&after=%.0f", caseID, seen), "")
		page := a.is(http.StatusOK)
		if len(a.text) > 9<<20 {
			t.Errorf("a page of %d bytes", len(a.text))
		}
		for _, one := range page["receipts"].([]any) {
			if seen++; one.(map[string]any)["sequence"] != seen {
				t.Fatalf("receipt %v after %v", one.(map[string]any)["sequence"], seen-1)
			}
		}
		if page["next"] != seen {
			t.Fatalf("next is %v after %v", page["next"], seen)
		}
		more = page["more"].(bool)
	}
	if pages < 3 || seen < long {
		t.Errorf("%v receipts in %d pages", seen, pages)
	}
}

// Who did what and when, over all cases of the tenant and its operation logs, and of no other tenant.
func TestReceiptsAreFoundByActorTimeAndSubtype(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	auditor, operator := r.key("acme", access.Auditor), r.key("acme", access.Operator)
	for i := range 2 {
		run := r.letter("acme", i+1, `"refused"`)
		r.ask(operator, http.MethodPost, "/api/v1/dead-letters/"+run+"/hold", `{"reason":"asked for"}`).is(http.StatusOK)
	}
	r.ask(operator, http.MethodPost, "/api/v1/keys", `{}`).is(http.StatusForbidden) // a receipt of an operation log
	find := func(key, query string) (subtypes []string, page map[string]any) {
		page = r.ask(key, http.MethodGet, "/api/v1/receipts?"+query, "").is(http.StatusOK)
		for _, one := range page["receipts"].([]any) {
			subtypes = append(subtypes, one.(map[string]any)["subtype"].(string))
		}
		return subtypes, page
	}
	const by = "actor=user:operator@acme"
	poll.Until(t, "the receipts have their places", func() bool { found, _ := find(auditor, by); return len(found) >= 3 })
	all, page := find(auditor, by)
	slices.Sort(all)
	if want := []string{"access-refused", "hold-placed", "hold-placed"}; !slices.Equal(all, want) || page["complete"] != true {
		t.Errorf("%v, want %v: %v", all, want, page)
	}
	first, page := find(auditor, by+"&limit=2")
	rest, last := find(auditor, fmt.Sprintf("%s&limit=2&after=%.0f", by, page["next"]))
	if len(first) != 2 || len(rest) != 1 || page["complete"] != false || last["complete"] != true {
		t.Errorf("%v, then %v: %v", first, rest, page)
	}
	at := page["receipts"].([]any)[1].(map[string]any)["at"].(string)
	for query, want := range map[string]int{
		by + "&subtype=hold-placed": 2, "subtype=dead-lettered": 2, by + "&subtype=submitted": 0, by + "&since=" + at: 2, by + "&until=" + at: 1, by + "&since=" + at + "&until=2999-01-01T00:00:00Z": 2,
	} {
		if got, _ := find(auditor, query); len(got) != want {
			t.Errorf("%s: %v, want %d", query, got, want)
		}
	}
	if got, _ := find(r.key("other", access.Auditor), "limit=1000"); slices.ContainsFunc(got, func(s string) bool { return s != "key-created" }) {
		t.Errorf("another tenant finds %v", got)
	}
	r.ask(auditor, http.MethodGet, "/api/v1/receipts?subtype=unknown-one", "").refused(http.StatusUnprocessableEntity, "invalid", "subtype")
	r.ask(auditor, http.MethodGet, "/api/v1/receipts?since="+at+"&until="+at, "").refused(http.StatusUnprocessableEntity, "invalid", "until")
}
