package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
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
