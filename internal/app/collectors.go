package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// measuredService is what the collectors read.
type measuredService interface {
	Stats() postadjudication.Stats
	Levels(ctx context.Context) (postadjudication.Levels, error)
	Webhooks(ctx context.Context) (webhooks.Health, error)
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// processCollector exports the metrics of this process.
type processCollector struct {
	service measuredService
	started time.Time
}

// Describe implements prometheus.Collector.
func (p processCollector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, to) }

// Collect implements prometheus.Collector.
func (p processCollector) Collect(to chan<- prometheus.Metric) {
	s := p.service.Stats()
	gauge := func(name string, v float64, help string) {
		to <- prometheus.MustNewConstMetric(newDesc(name, help), prometheus.GaugeValue, v)
	}
	count := func(name string, n uint64, help string) {
		to <- prometheus.MustNewConstMetric(newDesc(name, help), prometheus.CounterValue, float64(n))
	}
	countResults := func(name string, results map[string]uint64, help string) {
		for result, n := range results {
			to <- prometheus.MustNewConstMetric(newDesc(name, help, "result"), prometheus.CounterValue, float64(n), result)
		}
	}
	gauge("recourse_calls_running", float64(s.Running), "Calls of the escrow service in flight.")
	gauge("recourse_runs_waiting_in_worker", float64(s.Waiting), "Runs that wait for their next attempt in this process.")
	gauge("recourse_calls_abandoned", float64(s.Abandoned), "Calls that exceeded the time limit of their attempt and have not returned.")
	gauge("recourse_breakers_not_closed", float64(s.BreakersNotClosed), "Circuit breakers that are open or half-open, as read by this process.")
	gauge("recourse_breakers_stalled", float64(s.StalledBreakers), "Circuit breakers with waiting runs and no new case to probe the escrow service: a person has to act.")
	gauge("recourse_breakers_stalled_runs", float64(s.StalledRuns), "Runs that wait behind stalled circuit breakers, at most 1000 counted for each.")
	gauge("recourse_queues_paused", float64(s.PausedQueues), "Queues paused in asynq: their runs are not delivered.")
	gauge("recourse_dead_letter_subscribers", float64(s.Subscribers), "Subscribers of dead letters in this process.")
	gauge("recourse_dead_letters_unarchived", float64(s.Retention.Unarchived), "Dead letters of settlements kept beyond their retention because there is no archive.")
	gauge("recourse_clock_offset_seconds", s.ClockOffset.Seconds(), "How far the database's clock is ahead of this machine's. All times are the database's. A process whose clock alone is off by over a second claims nothing.")
	gauge("recourse_clock_error_seconds", s.ClockError.Seconds(), "How far what this process takes for the database's clock, and records, may differ from it: half the shortest round trip of its last measurements.")
	gauge("recourse_uptime_seconds", time.Since(p.started).Seconds(), "Time since this process opened its service.")
	gauge("recourse_runs_unreadable", float64(s.Unreadable), "Runs seen within ten minutes that this process cannot read, such as runs of a newer version, or cannot change, because somebody wrote a receipt beyond the head of their case. doctor says which.")
	count("recourse_outcomes_unrecordable_total", s.Unrecordable, "Outcomes that could not be recorded: their runs became dead letters for a person.")
	count("recourse_evidence_write_failures_total", s.WriteFailures, "Failed attempts to write a transition.")
	count("recourse_stale_claims_total", s.StaleClaims, "Claims that were too old for a call, because Postgres or this machine stalled. They spend no attempt.")
	count("recourse_subscriber_calls_total", s.SubscriberCalls, "Calls of subscribers of dead letters that returned.")
	count("recourse_subscriber_panics_total", s.SubscriberPanics, "Calls of subscribers of dead letters that panicked.")
	count("recourse_subscriber_unreadable_total", s.SubscriberUnreadable, "Calls of subscribers of dead letters without the particulars of the death: its receipt could not be read.")
	count("recourse_notifications_resent_total", s.NotificationsResent, "Notifications that the sweeper sent again.")
	count("recourse_deliveries_paused_total", s.PausedDeliveries, "Deliveries that were not executed because a circuit breaker was open.")
	count("recourse_archived_tasks_removed_total", s.ArchivedTasksRemoved, "Archived tasks of dead letters removed from asynq.")
	count("recourse_dead_letters_pruned_total", s.Retention.Pruned, "Dead letters removed because their retention expired.")
	count("recourse_dead_letters_prune_failures_total", s.Retention.Failed, "Failures to announce the expiry of a dead letter, or to remove it.")
	countResults("recourse_dead_letter_lookups_total", map[string]uint64{"asked": s.Lookups.Asked, "cleared": s.Lookups.Cleared, "closed": s.Lookups.Closed},
		"Lookups about dead letters of unknown outcome, by result: asked, cleared (nothing was executed), closed (a payment was found).")
	countResults("recourse_webhook_deliveries_total", map[string]uint64{"delivered": s.Webhooks.Delivered, "failed": s.Webhooks.Failed},
		"Requests to webhooks by this process, by result: delivered (answered with 2xx), failed.")
	count("recourse_webhooks_paused_total", s.Webhooks.Paused, "Webhooks that paused themselves: nothing was accepted for three days, or the receiver answered 410. Nothing is sent to them until a person resumes them.")
	gauge("recourse_webhooks_sending", float64(s.Webhooks.Sending), "Webhooks to which this process sends; 0 in processes that stand by. One process sends for all.")
	gauge("recourse_webhook_lag_seconds", s.Webhooks.Lag.Seconds(), "Age of the oldest event that this process has read for a webhook and that is not delivered; 0 if there is none.")
	to <- batches(newDesc("recourse_transition_commit_rows", "Transitions of existing cases in one commit."), s.Transitions)
	to <- batches(newDesc("recourse_submit_commit_rows", "New cases in one commit."), s.NewCases)
}

// batches returns a histogram of the rows in one commit.
func batches(d *prometheus.Desc, b postadjudication.Batches) prometheus.Metric {
	below, all := make(map[float64]uint64, len(b.Batches)), uint64(0)
	for i, n := range b.Batches {
		all += n
		below[float64(postadjudication.BatchBounds[i])] = all
	}
	return prometheus.MustNewConstHistogram(d, all, float64(b.Rows), below)
}

// storeCollector exports the levels of all processes, read from the database. A part that could not be read is not exported.
type storeCollector struct {
	levels *levelCache

	measured, runs, oldestDue, atRisk, withoutLetter, expiring, held, unserved, uncalled, unknown, overpayments, contradictions, escrowsBreached, brokeGlass, plansWaiting, oldestEscrowDelta, webhooks, webhooksFailing *prometheus.Desc
}

func newStoreCollector(levels *levelCache) *storeCollector {
	return &storeCollector{
		levels:            levels,
		measured:          newDesc("recourse_store_metrics_up", "1 if all metrics over all processes could be read from the database; at 0 those of recourse_store_metric_failures_total are not exported."),
		runs:              newDesc("recourse_runs", "Live runs by state, and open dead letters as dead_lettered, of all processes.", "state"),
		oldestDue:         newDesc("recourse_oldest_due_age_seconds", "How long the oldest waiting run has been due; 0 if none is."),
		atRisk:            newDesc("recourse_money_at_risk_minor_units", "Money reserved by cases with an open dead letter, in minor units.", "currency"),
		withoutLetter:     newDesc("recourse_money_without_letter_minor_units", "Money reserved by cases with neither a live run nor an open dead letter, in minor units.", "currency"),
		expiring:          newDesc("recourse_dead_letters_expiring", "Open dead letters whose retention expires within seven days or has expired.", "family"),
		held:              newDesc("recourse_dead_letters_held", "Open dead letters that are held."),
		unserved:          newDesc("recourse_runs_unserved", "Live runs in queues that no running process serves. They are not executed."),
		uncalled:          newDesc("recourse_runs_without_caller", "Live runs and open dead letters of settlements whose escrow service no running process calls. They are not executed or looked up."),
		overpayments:      newDesc("recourse_conservation_breaches_total", "Payments beyond the adjudicated amount, of all processes."),
		contradictions:    newDesc("recourse_contradictions_total", "Answers and findings that contradict a payment on record, of all processes."),
		escrowsBreached:   newDesc("recourse_escrows_breached", "Escrows that have committed more than they hold."),
		brokeGlass:        newDesc("recourse_break_glass_total", "Bulk plans that one person ran for an incident although they take two, of all processes."),
		plansWaiting:      newDesc("recourse_plans_waiting", "Bulk plans of all tenants that were planned and that nobody has started."),
		oldestEscrowDelta: newDesc("recourse_escrow_delta_oldest_age_seconds", "Age of the oldest change of an escrow's committed sum that is not yet in its row; 0 if there is none."),
		unknown:           newDesc("recourse_dead_letters_unknown", "Open dead letters of settlements with an unknown outcome, by what they wait for: lookup, person.", "waits_for"),
		webhooks:          newDesc("recourse_webhooks", "Webhooks of all tenants by state: active, paused.", "state"),
		webhooksFailing:   newDesc("recourse_webhooks_failing", "Active webhooks of which an event failed and is not delivered yet."),
	}
}

// Describe implements prometheus.Collector.
func (j *storeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{j.measured, j.runs, j.oldestDue, j.atRisk, j.withoutLetter, j.expiring, j.held, j.unserved, j.uncalled, j.unknown, j.overpayments, j.contradictions, j.escrowsBreached, j.brokeGlass, j.plansWaiting, j.oldestEscrowDelta, j.webhooks, j.webhooksFailing, jobLettersTotal, jobLettersDepth} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (j *storeCollector) Collect(to chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, d *prometheus.Desc, v float64, label ...string) {
		m, err := prometheus.NewConstMetric(d, kind, v, label...)
		if err != nil { // as of a label that is not UTF-8: the other metrics are exported
			m = prometheus.NewInvalidMetric(d, err)
		}
		to <- m
	}
	gauge := func(d *prometheus.Desc, v float64, label ...string) { send(prometheus.GaugeValue, d, v, label...) }
	l := j.levels.get(context.Background())
	read := func(part string) bool { return l.Failed[part] == nil }
	gauge(j.measured, map[bool]float64{true: 1}[len(l.Failed) == 0])
	j.collectRuns(l, read, gauge)
	if read("escrow_deltas") {
		gauge(j.oldestEscrowDelta, ageOf(l.OldestUnfolded))
	}
	if read("breaches") {
		gauge(j.escrowsBreached, float64(l.Breaches.Escrows))
		send(prometheus.CounterValue, j.overpayments, float64(l.Excesses))
		send(prometheus.CounterValue, j.contradictions, float64(l.Contradictions))
	}
	if read("break_glass") {
		send(prometheus.CounterValue, j.brokeGlass, float64(l.BrokeGlass))
	}
	if read("plans_waiting") {
		gauge(j.plansWaiting, float64(l.PlansWaiting))
	}
	if read("expiring") {
		for family, n := range l.Expiring {
			gauge(j.expiring, float64(n), family)
		}
	}
	if read(webhooksPart) {
		gauge(j.webhooks, float64(l.Webhooks.Active), string(webhooks.Active))
		gauge(j.webhooks, float64(l.Webhooks.Paused), string(webhooks.Paused))
		gauge(j.webhooksFailing, float64(l.Webhooks.FailingActive))
	}
	if read("held") {
		gauge(j.held, float64(l.Held))
	}
	if read("unknown") {
		gauge(j.unknown, float64(l.Unknown.ForLookup), "lookup")
		gauge(j.unknown, float64(l.Unknown.ForPerson), "person")
	}
}

// collectRuns exports what is read of runs and of dead letters.
func (j *storeCollector) collectRuns(l storeLevels, read func(part string) bool, gauge func(d *prometheus.Desc, v float64, label ...string)) {
	for state, n := range l.Runs {
		if part := map[bool]string{true: "dead_letters", false: "runs"}[state == background.DeadLettered]; read(part) {
			gauge(j.runs, float64(n), string(state))
		}
	}
	if read("runs") {
		gauge(j.oldestDue, ageOf(l.OldestDue))
	}
	if read("dead_letters") {
		for currency, sum := range l.AtRisk {
			gauge(j.atRisk, sum.Float(), currency)
		}
		jobGauges(l.Levels, gauge)
	}
	if read("without_letter") {
		for currency, sum := range l.WithoutLetter {
			gauge(j.withoutLetter, sum.Float(), currency)
		}
	}
	if read("unserved") {
		gauge(j.unserved, float64(l.Unserved))
	}
	if read("uncalled") {
		gauge(j.uncalled, float64(l.Uncalled))
	}
}

// ageOf returns the seconds since a time; 0 for the zero time.
func ageOf(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, time.Since(at).Seconds())
}

var keyExpires = newDesc("recourse_access_key_expires_timestamp_seconds", "When an access key expires that this process saw in its last 30 days, by its prefix.", "key")

// expiringKeys exports the access keys that expire soon.
type expiringKeys struct {
	door interface{ ExpiringKeys() map[string]time.Time }
}

// Describe implements prometheus.Collector.
func (k expiringKeys) Describe(to chan<- *prometheus.Desc) { to <- keyExpires }

// Collect implements prometheus.Collector.
func (k expiringKeys) Collect(to chan<- prometheus.Metric) {
	for prefix, end := range k.door.ExpiringKeys() {
		to <- prometheus.MustNewConstMetric(keyExpires, prometheus.GaugeValue, float64(end.Unix()), prefix)
	}
}
