package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
)

// scraped returns the samples of a metrics page: name with labels -> value.
func scraped(t *testing.T, page string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for line := range strings.SplitSeq(page, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, " ")
		v, err := strconv.ParseFloat(value, 64)
		if !found || err != nil {
			t.Fatalf("not a sample: %q", line)
		}
		out[name] = v
	}
	return out
}

func TestTheMetricsAreWhatTheDatabaseSays(t *testing.T) {
	t.Parallel()
	const each = 5
	words := []string{"ok", "refused", "retryable", "retryable,ok"}
	ended := make(chan struct{}, each*len(words))
	m := &app.Main{OnTransition: func(_ background.Transition, after background.Run) {
		if !after.State.Live() {
			ended <- struct{}{}
		}
	}}
	o := options(t)
	o.Breaker.Disabled = true // most calls of the mix fail
	start(t, o, m)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	for n := range each * len(words) {
		a := adjudication()
		a.TransactionReceiptID, a.EscrowReference = fmt.Sprintf("txr_%d", n), fmt.Sprintf("esc_%d", n)
		a.Payload = json.RawMessage(`{"simulate":"` + words[n%len(words)] + `"}`)
		if _, err := m.Service.Submit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	for range cap(ended) {
		<-ended
	}
	for _, reason := range []string{"in court", "asked by the bank"} {
		if _, err := m.Service.As(adjudication().Tenant, "user:ada").Bulk.Plan(t.Context(), bulk.Request{Action: bulk.Hold, All: true, Reason: reason}); err != nil {
			t.Fatal(err)
		}
	}
	_, page := get(t, m.URL+"/metrics")
	compare(t, o.DatabaseURL, scraped(t, page))
	stop()
	if err := <-ran; err != nil {
		t.Errorf("run: %v", err)
	}
}

// compare compares each sample with the database.
func compare(t *testing.T, databaseURL string, page map[string]float64) {
	t.Helper()
	db := testkit.OpenAsOwner(t, databaseURL)
	const receipt = `SELECT count(*) FROM recourse.receipts WHERE subtype = `
	for sample, query := range map[string]string{
		`recourse_runs_entered_total{state="running"}`:          receipt + `'attempt-started'`,
		`recourse_runs_entered_total{state="succeeded"}`:        receipt + `'attempt-succeeded'`,
		`recourse_attempts_total{class="executed"}`:             receipt + `'attempt-succeeded'`,
		`recourse_attempts_total{class="not_executed"}`:         `SELECT count(*) FROM recourse.receipts WHERE subtype IN ('retry-scheduled', 'dead-lettered')`,
		`recourse_dead_letters_total{reason="final"}`:           `SELECT count(*) FROM recourse.runs WHERE reason = 'final'`,
		`recourse_retry_lateness_seconds_count`:                 `SELECT count(*) FROM recourse.receipts WHERE subtype = 'retry-scheduled' AND run_id IN (SELECT id FROM recourse.runs WHERE NOT live)`,
		`recourse_runs{state="dead_lettered"}`:                  `SELECT count(*) FROM recourse.runs WHERE letter = 'open'`,
		`recourse_runs{state="pending"}`:                        `SELECT count(*) FROM recourse.runs WHERE state = 'pending'`,
		`recourse_money_at_risk_minor_units{currency="USD"}`:    `SELECT sum(reserved) FROM recourse.cases WHERE progression = 'dispute-ready'`,
		`recourse_submit_commit_rows_sum`:                       `SELECT count(*) FROM recourse.cases WHERE kind = 'settlement'`,
		`recourse_transition_commit_rows_sum`:                   `SELECT count(*) FROM recourse.receipts WHERE subtype NOT IN ('submitted', 'bulk-changed')`,
		`recourse_dead_letters_total{reason="retry_exhausted"}`: `SELECT count(*) FROM recourse.runs WHERE reason = 'retry_exhausted'`,
		`recourse_evidence_write_failures_total`:                `SELECT 0`,
		`recourse_store_metrics_up`:                             `SELECT 1`,
		`recourse_oldest_due_age_seconds`:                       `SELECT 0`,
		`recourse_plans_waiting`:                                `SELECT count(*) FROM recourse.bulks`,
	} {
		var want float64
		if err := db.QueryRow(query).Scan(&want); err != nil {
			t.Fatalf("%s: %v", sample, err)
		}
		if got, shown := page[sample]; !shown || got != want {
			t.Errorf("%s: exported %v, %v, the database has %v", sample, shown, got, want)
		}
	}
	if page[`recourse_runs{state="dead_lettered"}`] != 10 || page[`recourse_money_at_risk_minor_units{currency="USD"}`] != 1000 || page[`recourse_plans_waiting`] != 2 {
		t.Error("the mix left no letters or no plans to measure")
	}
}

// What takes one part of the metrics away, here a column, leaves those of every other part.
func TestTheMetricsOfOnePartFailAlone(t *testing.T) {
	t.Parallel()
	m := &app.Main{}
	o := options(t)
	start(t, o, m)
	if _, err := m.Service.Submit(t.Context(), adjudication()); err != nil {
		t.Fatal(err)
	}
	if _, err := testkit.OpenAsOwner(t, o.DatabaseURL).Exec(`ALTER TABLE recourse.bulks RENAME COLUMN incident TO incident_of_another`); err != nil {
		t.Fatal(err)
	}
	var page map[string]float64
	for range 2 { // the second scrape shows what the first one counted
		_, text := get(t, m.URL+"/metrics")
		page = scraped(t, text)
	}
	for sample, want := range map[string]float64{
		`recourse_store_metrics_up`: 0, `recourse_store_metric_failures_total{part="break_glass"}`: 1, `recourse_store_metric_failures_total{part="runs"}`: 0, `recourse_store_metric_failures_total{part="webhooks"}`: 0,
		`recourse_runs{state="pending"}`: 1, `recourse_runs{state="dead_lettered"}`: 0, `recourse_dead_letters_held`: 0, `recourse_dead_letters_unknown{waits_for="person"}`: 0, `recourse_escrow_delta_oldest_age_seconds`: 0,
		`recourse_conservation_breaches_total`: 0, `recourse_escrows_breached`: 0, `recourse_runs_without_caller`: 1, `recourse_dead_letters_expiring{family="settlement"}`: 0, `recourse_webhooks{state="active"}`: 0, `recourse_webhooks_failing`: 0, `recourse_plans_waiting`: 0,
	} {
		if got, shown := page[sample]; !shown || got != want {
			t.Errorf("%s: exported %v, %v, want %v", sample, shown, got, want)
		}
	}
	if got, shown := page[`recourse_break_glass_total`]; shown {
		t.Errorf("recourse_break_glass_total: %v, though it can't be read", got)
	}
}

func TestNotReadyWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server, _ := testkit.Redis(t)
	m := &app.Main{}
	o := options(t)
	o.RedisURL = server.URL()
	start(t, o, m)
	if status, body := get(t, m.URL+"/readyz"); status != http.StatusOK {
		t.Fatalf("%d %q", status, body)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, m.URL+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "Redis can't be reached") {
		t.Errorf("%d %q", status, body)
	}
}
