package api_test

import (
	"net/http"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
)

func TestRetentionIsReportedAsConfigured(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *app.Options) {
		o.Retention = app.Retention{Archive: t.TempDir(), Rules: []string{"settlement=P90D", "settlement:0=P30D/10000"}}
		o.NoOpenWOP = true // it promises a time, and a number can end it
	})
	answer := r.ask(r.key("acme", access.Auditor), http.MethodGet, "/api/v1/retention", "").is(http.StatusOK)["retention"].([]any)
	if len(answer) != 3 || answer[0].(map[string]any)["family"] != "ojs" {
		t.Fatalf("%v", answer)
	}
	family, queue := answer[1].(map[string]any), answer[2].(map[string]any)
	if family["family"] != "settlement" || family["max_age"] != "90d" || family["max_count"] != nil || family["archived"] != true {
		t.Errorf("%v", family)
	}
	if queue["queue"] != "settlement:0" || queue["max_age"] != "30d" || queue["max_count"] != 10000.0 {
		t.Errorf("%v", queue)
	}
}
