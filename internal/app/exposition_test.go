package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

func TestTheExpositionIsThatOfPrometheus(t *testing.T) {
	t.Parallel()
	c := newCounter("n_total", "Things.", "kind", "b")
	c.add("a\"\n")
	h := newHistogram("h_seconds", "Times.", []float64{.5, 1})
	for _, v := range []float64{.5, .75, 3} {
		h.observe(v)
	}
	var e exposition
	e.counter(c)
	e.histogram(h)
	e.single("g", "Now.", "gauge", 2.5)
	want := `# HELP n_total Things.
# TYPE n_total counter
n_total{kind="a\"\n"} 1
n_total{kind="b"} 0
# HELP h_seconds Times.
# TYPE h_seconds histogram
h_seconds_bucket{le="0.5"} 1
h_seconds_bucket{le="1"} 2
h_seconds_bucket{le="+Inf"} 3
h_seconds_sum 4.25
h_seconds_count 3
# HELP g Now.
# TYPE g gauge
g 2.5
`
	if got := string(e.text); got != want {
		t.Errorf("got:\n%s", got)
	}
}

func TestMovesAreCountedByWhatTheyMean(t *testing.T) {
	t.Parallel()
	m := newMetrics(func(context.Context) (postadjudication.Levels, error) {
		return postadjudication.Levels{
			Runs:   map[background.State]int64{background.Pending: 4},
			AtRisk: map[string]int64{"EUR": 1250}, OldestDue: time.Unix(1050, 0),
		}, nil
	})
	at := time.Unix(1000, 0)
	pending := background.Run{State: background.Pending}
	first := background.Run{State: background.Running, Attempt: 1}
	waits := background.Run{State: background.Scheduled, Attempt: 1, DueAt: at}
	dead := background.Run{State: background.DeadLettered, Attempt: 2, Reason: background.ReasonFinal}
	refused := background.Result{Class: background.NotExecuted}
	for _, step := range []struct {
		mv    background.Move
		after background.Run
	}{
		{background.Move{Fact: receipts.AttemptStarted, Run: pending, At: at}, first},
		{background.Move{Fact: receipts.RetryScheduled, Run: first, Result: refused}, waits},
		{background.Move{Fact: receipts.AttemptStarted, Run: waits, At: at.Add(2 * time.Millisecond)}, background.Run{State: background.Running, Attempt: 2}},
		{background.Move{Fact: receipts.DeadLettered, Run: background.Run{State: background.Running, Attempt: 2}, Result: refused}, dead},
		{background.Move{Fact: receipts.AnsweredLate, Run: dead, Result: background.Result{Class: background.Executed}}, dead},
	} {
		m.moved(step.mv, step.after)
	}
	stats := postadjudication.Stats{Stats: background.Stats{WriteFailures: 7, Abandoned: 2}}
	stats.Moves.Commits[0], stats.Moves.Commits[2], stats.Moves.Rows = 3, 1, 7
	text, err := m.page(t.Context(), stats, at, at.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, line := range []string{
		`recourse_attempts_total{class="not_executed"} 2`, `recourse_attempts_total{class="executed"} 0`,
		`recourse_runs_entered_total{state="running"} 2`, `recourse_runs_entered_total{state="dead_lettered"} 1`,
		`recourse_dead_letters_total{reason="final"} 1`, `recourse_retry_lateness_seconds_count 1`,
		`recourse_retry_lateness_seconds_sum 0.002`, `recourse_evidence_write_failures_total 7`, `recourse_calls_abandoned 2`,
		`recourse_uptime_seconds 60`, `recourse_levels_measured 1`, `recourse_runs{state="pending"} 4`,
		`recourse_oldest_due_age_seconds 10`, `recourse_money_at_risk_minor_units{currency="EUR"} 1250`,
		`recourse_move_commit_rows_bucket{le="1"} 3`, `recourse_move_commit_rows_bucket{le="4"} 4`,
		`recourse_move_commit_rows_bucket{le="+Inf"} 4`, `recourse_move_commit_rows_sum 7`, `recourse_move_commit_rows_count 4`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("without %s:\n%s", line, page)
		}
	}
}
