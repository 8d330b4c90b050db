package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// No HTTP door makes a second id of another spelling of one: each refuses it with the code point that is wrong, and leaves
// no run.
func TestEveryHTTPDoorRefusesOtherSpellingsOfAnID(t *testing.T) {
	t.Parallel()
	o, m := options(t), &app.Main{}
	o.PaymentQueues = []string{"payouts"}
	start(t, o, m)
	key := bearer(t, m, access.Submitter)
	db := testkit.OpenAsOwner(t, o.DatabaseURL)
	doors := map[string]struct{ path, before, after string }{
		"/api/v1":         {"/api/v1/adjudications", "", ""},
		"/ojs":            {"/ojs/v1/jobs", `{"type":"settlement.execute","queue":"payouts","args":[`, `]}`},
		"/v1 (OpenWOP)":   {"/v1/runs", `{"workflowId":"settlement","inputs":`, `}`},
		"/api/v1 in bulk": {"/api/v1/adjudications/batch", `{"adjudications":[`, `]}`},
	}
	fields := []string{"transaction_receipt_id", "submission_receipt_id", "adjudication_id", "escrow_reference"}
	made, n := 0, 0
	for name, door := range doors {
		for i, s := range testkit.Spellings() {
			field := fields[i%len(fields)]
			n++
			members := map[string]any{
				"outcome": "release", "amount": map[string]any{"minor": 100, "currency": "USD"}, "held": map[string]any{"minor": 100, "currency": "USD"},
			}
			for _, f := range fields {
				members[f] = fmt.Sprintf("%s_%d", f, n)
			}
			members[field] = s.ID + map[bool]string{true: fmt.Sprint("-", n)}[s.Wrong == ""]
			body, err := json.Marshal(members)
			if err != nil {
				t.Fatal(err)
			}
			status, text := post(t, m.URL+door.path, door.before+string(body)+door.after, "Authorization", key, "Idempotency-Key", fmt.Sprint("k", n))
			accepted := status/100 == 2 && !strings.Contains(text, `"accepted":false`)
			switch {
			case s.Wrong == "" && !accepted:
				t.Errorf("%s, %s %+q: %d %s", name, field, s.ID, status, text)
			case s.Wrong == "":
				made++
			case accepted || !strings.Contains(text, "has "+s.Wrong) || !strings.Contains(text, field):
				t.Errorf("%s, %s %+q: %d %s, want %s named", name, field, s.ID, status, text, s.Wrong)
			}
		}
	}
	var runs int
	if err := db.QueryRow(`SELECT count(*) FROM recourse.runs`).Scan(&runs); err != nil || runs != made || made == 0 {
		t.Errorf("%d runs of %d accepted ids, %v", runs, made, err)
	}
}

// post returns the status and the body of the answer to a request with a body.
func post(t *testing.T, url, body string, headers ...string) (status int, text string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	return answerOf(t, q)
}
