package app

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// fixedMeasures returns the values that the test sets.
type fixedMeasures struct {
	stats    postadjudication.Stats
	levels   postadjudication.Levels
	webhooks webhooks.Health
	err      error
}

func (f fixedMeasures) Stats() postadjudication.Stats { return f.stats }

func (f fixedMeasures) Levels(context.Context) (postadjudication.Levels, error) {
	return f.levels, f.err
}

func (f fixedMeasures) Webhooks(context.Context) (webhooks.Health, error) { return f.webhooks, f.err }

func pageOf(t *testing.T, m *metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.handler(zap.NewNop()).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Fatalf("%d %s", w.Code, w.Header().Get("Content-Type"))
	}
	return w.Body.String()
}

func expect(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("without %s:\n%s", line, page)
		}
	}
}

func TestTransitionsAreCountedByWhatTheyMean(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	at := time.Unix(1000, 0)
	pending := background.Run{State: background.Pending}
	first := background.Run{State: background.Running, Attempt: 1}
	waits := background.Run{State: background.Scheduled, Attempt: 1, DueAt: at}
	dead := background.Run{State: background.DeadLettered, Attempt: 2, Reason: background.ReasonFinal}
	refused := background.Result{Class: background.NotExecuted}
	for _, step := range []struct {
		mv    background.Transition
		after background.Run
	}{
		{background.Transition{Subtype: receipts.AttemptStarted, Run: pending, At: at}, first},
		{background.Transition{Subtype: receipts.RetryScheduled, Run: first, Result: refused}, waits},
		{background.Transition{Subtype: receipts.AttemptStarted, Run: waits, At: at.Add(2 * time.Millisecond)}, background.Run{State: background.Running, Attempt: 2}},
		{background.Transition{Subtype: receipts.DeadLettered, Run: background.Run{State: background.Running, Attempt: 2}, Result: refused}, dead},
		{background.Transition{Subtype: receipts.OutOfBandChangeDetected, Run: dead, Reason: background.ArchivedTaskRequeued}, dead},
		{background.Transition{Subtype: receipts.AnsweredLate, Run: dead, Result: background.Result{Class: background.Executed}}, dead},
	} {
		m.countTransition(step.mv, step.after)
	}
	m.countDeath(dead)
	expect(t, pageOf(t, m),
		`recourse_attempts_total{class="not_executed"} 2`, `recourse_attempts_total{class="executed"} 0`,
		`recourse_runs_entered_total{state="running"} 2`, `recourse_runs_entered_total{state="dead_lettered"} 1`,
		`recourse_dead_letters_total{reason="final"} 1`, `recourse_dead_letters_total{reason="case_ended"} 0`, `recourse_dead_letters_total{reason="paid_under_older_key"} 0`,
		`recourse_retry_lateness_seconds_count 1`,
		`recourse_out_of_band_changes_total{what="archived_task_requeued"} 1`,
		`recourse_retry_lateness_seconds_sum 0.002`)
}

func TestThePageShowsWhatTheServiceMeasures(t *testing.T) {
	t.Parallel()
	of := fixedMeasures{levels: postadjudication.Levels{
		Runs:   map[background.State]int64{background.Pending: 4},
		AtRisk: settlement.Sums{"EUR": settlement.SumOf(1250)}, WithoutLetter: settlement.Sums{"EUR": settlement.SumOf(1270)}, Held: 3, Unserved: 4, Uncalled: 17, Expiring: map[string]int64{"settlement": 6},
		Breaches: postadjudication.Breaches{Excesses: 13, Escrows: 12, Overdrawn: settlement.SumOf(1)},
	}}
	of.stats.Retention.Pruned, of.stats.Retention.Unarchived, of.stats.Retention.Failed = 8, 5, 2
	of.levels.Unknown.ForLookup, of.levels.Unknown.ForPerson = 12, 13
	of.stats.Lookups.Asked, of.stats.Lookups.Cleared, of.stats.Lookups.Closed = 14, 15, 16
	of.stats.WriteFailures, of.stats.Abandoned = 7, 2
	of.stats.PausedQueues, of.stats.ArchivedTasksRemoved = 1, 9
	of.stats.Subscribers, of.stats.SubscriberCalls, of.stats.SubscriberPanics, of.stats.SubscriberUnreadable = 2, 11, 3, 26
	of.stats.Transitions.Batches[0], of.stats.Transitions.Batches[2], of.stats.Transitions.Rows = 3, 1, 7
	of.stats.Webhooks = webhooks.Stats{Delivered: 18, Failed: 19, Paused: 20, Sending: 21, Lag: 22 * time.Second}
	of.webhooks = webhooks.Health{Active: 23, Paused: 24, FailingActive: 25}
	m := newMetrics()
	m.registerCollectors(of, time.Now(), zap.NewNop())
	expect(t, pageOf(t, m),
		`recourse_evidence_write_failures_total 7`, `recourse_calls_abandoned 2`, `recourse_queues_paused 1`, `recourse_archived_tasks_removed_total 9`,
		`recourse_dead_letters_pruned_total 8`, `recourse_dead_letters_prune_failures_total 2`, `recourse_dead_letters_unarchived 5`, `recourse_dead_letters_expiring{family="settlement"} 6`, `recourse_dead_letters_held 3`, `recourse_runs_unserved 4`, `recourse_runs_without_caller 17`, `recourse_store_metrics_up 1`,
		`recourse_conservation_breaches_total 13`, `recourse_escrows_breached 12`, `recourse_escrow_delta_oldest_age_seconds 0`,
		`recourse_dead_letters_unknown{waits_for="lookup"} 12`, `recourse_dead_letters_unknown{waits_for="person"} 13`,
		`recourse_dead_letter_lookups_total{result="asked"} 14`, `recourse_dead_letter_lookups_total{result="cleared"} 15`, `recourse_dead_letter_lookups_total{result="closed"} 16`,
		`recourse_runs{state="pending"} 4`, `recourse_oldest_due_age_seconds 0`, `recourse_money_at_risk_minor_units{currency="EUR"} 1250`, `recourse_money_without_letter_minor_units{currency="EUR"} 1270`,
		`recourse_webhook_deliveries_total{result="delivered"} 18`, `recourse_webhook_deliveries_total{result="failed"} 19`, `recourse_webhooks_paused_total 20`,
		`recourse_webhooks_sending 21`, `recourse_webhook_lag_seconds 22`, `recourse_webhooks{state="active"} 23`, `recourse_webhooks{state="paused"} 24`, `recourse_webhooks_failing 25`,
		`recourse_dead_letter_subscribers 2`, `recourse_subscriber_calls_total 11`, `recourse_subscriber_panics_total 3`, `recourse_subscriber_unreadable_total 26`,
		`recourse_transition_commit_rows_bucket{le="1"} 3`, `recourse_transition_commit_rows_bucket{le="4"} 4`,
		`recourse_transition_commit_rows_bucket{le="+Inf"} 4`, `recourse_transition_commit_rows_sum 7`, `recourse_transition_commit_rows_count 4`)
}

func TestWhatCannotBeMeasuredIsNotShown(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.registerCollectors(fixedMeasures{err: errors.New("no answer")}, time.Now(), zap.NewNop())
	page := pageOf(t, m)
	expect(t, page, `recourse_store_metrics_up 0`, `recourse_calls_running 0`)
	if strings.Contains(page, "recourse_runs{") || strings.Contains(page, "recourse_webhooks{") {
		t.Errorf("levels that nobody measured:\n%s", page)
	}
}

// What only a part of the metrics is made of leaves the page with it, and no other.
func TestEachPartOfTheMetricsFailsAlone(t *testing.T) {
	t.Parallel()
	of := fixedMeasures{levels: postadjudication.Levels{
		Runs:   map[background.State]int64{background.Pending: 4, background.DeadLettered: 5},
		AtRisk: settlement.Sums{"EUR": settlement.SumOf(1250)}, WithoutLetter: settlement.Sums{"EUR": settlement.SumOf(1270)}, JobLetters: map[string]int64{"mail": 1}, Expiring: map[string]int64{"settlement": 6},
	}}
	all := strings.Split(pageOfLevels(t, of), "\n")
	exclusive := map[string][]string{
		"runs": {`recourse_runs{state="pending"}`, "recourse_oldest_due_age_seconds"}, "dead_letters": {`recourse_runs{state="dead_lettered"}`, "recourse_money_at_risk_minor_units{", "ojs_dead_letter_total{", "ojs_dead_letter_depth{"},
		"without_letter": {"recourse_money_without_letter_minor_units{"}, "held": {"recourse_dead_letters_held"}, "break_glass": {"recourse_break_glass_total"}, "plans_waiting": {"recourse_plans_waiting"}, "unknown": {"recourse_dead_letters_unknown{"}, "escrow_deltas": {"recourse_escrow_delta_oldest_age_seconds"},
		"breaches": {"recourse_conservation_breaches_total", "recourse_contradictions_total", "recourse_escrows_breached"}, "unserved": {"recourse_runs_unserved"}, "uncalled": {"recourse_runs_without_caller"}, "expiring": {"recourse_dead_letters_expiring{"},
	}
	for _, part := range postadjudication.LevelParts {
		of.levels.Failed = map[string]error{part: errors.New("no answer")}
		page := pageOfLevels(t, of)
		expect(t, page, "recourse_store_metrics_up 0", `recourse_webhooks{state="active"} 0`)
		for _, line := range all {
			mine := slices.ContainsFunc(exclusive[part], func(name string) bool { return strings.HasPrefix(line, name) })
			if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "recourse_store_metric") || strings.HasPrefix(line, "recourse_uptime") {
				continue
			}
			if mine == strings.Contains(page, line+"\n") {
				t.Errorf("without %s, %s is exported: %v", part, line, !mine)
			}
		}
		if len(exclusive[part]) == 0 {
			t.Errorf("no metric is of the part %s", part)
		}
	}
}

func pageOfLevels(t *testing.T, of fixedMeasures) string {
	t.Helper()
	m := newMetrics()
	m.registerCollectors(of, time.Now(), zap.NewNop())
	return pageOf(t, m)
}
