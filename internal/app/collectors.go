package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication"
)

// measured is whom the collectors ask.
type measured interface {
	Stats() postadjudication.Stats
	Levels(ctx context.Context) (postadjudication.Levels, error)
}

func about(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// process shows what this process did and does.
type process struct {
	of      measured
	started time.Time

	subscribers, told, untold *prometheus.Desc // of dead letters

	running, waiting, abandoned, failures, rung, uptime, moves, opens, braked, parked, paused, unmirrored, pruned, unpruned, unarchived *prometheus.Desc
}

func newProcess(of measured, started time.Time) *process {
	return &process{
		of: of, started: started,
		running:     about("recourse_calls_running", "Calls of the escrow service in flight."),
		waiting:     about("recourse_runs_waiting_in_place", "Runs that wait for their next attempt in this process."),
		abandoned:   about("recourse_calls_abandoned", "Calls that outlived their attempt and have not answered yet."),
		failures:    about("recourse_evidence_write_failures_total", "Failed tries to write a move."),
		rung:        about("recourse_bells_rung_again_total", "Bells rung again by the sweeper."),
		braked:      about("recourse_brakes_not_released", "Brakes that are pulled or easing, as this process knows."),
		parked:      about("recourse_deliveries_parked_total", "Deliveries let go of because a brake was pulled."),
		paused:      about("recourse_queues_paused", "Queues that somebody paused in asynq: their runs are not delivered."),
		unmirrored:  about("recourse_mirrors_removed_total", "Mirrors of dead letters removed from asynq's archive."),
		pruned:      about("recourse_dead_letters_pruned_total", "Dead letters taken because their retention was over."),
		unpruned:    about("recourse_dead_letters_prune_failures_total", "Times that the end of a dead letter could not be announced, or the letter not be taken."),
		unarchived:  about("recourse_dead_letters_unarchived", "Dead letters of settlements that stay beyond their retention because there is no archive."),
		subscribers: about("recourse_letter_subscribers", "Subscribers of dead letters in this process."),
		told:        about("recourse_letters_told_total", "Calls of subscribers of dead letters that returned."),
		untold:      about("recourse_letters_untold_total", "Calls of subscribers of dead letters that panicked."),
		uptime:      about("recourse_uptime_seconds", "Since this process opened its service."),
		moves:       about("recourse_move_commit_rows", "Moves of existing cases that shared a commit."),
		opens:       about("recourse_submit_commit_rows", "New cases that shared a commit."),
	}
}

// Describe implements prometheus.Collector.
func (p *process) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, to) }

// Collect implements prometheus.Collector.
func (p *process) Collect(to chan<- prometheus.Metric) {
	s := p.of.Stats()
	gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	count := func(d *prometheus.Desc, v uint64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge(p.running, float64(s.Running))
	gauge(p.waiting, float64(s.Waiting))
	gauge(p.abandoned, float64(s.Abandoned))
	gauge(p.braked, float64(s.Braked))
	gauge(p.paused, float64(s.Paused))
	gauge(p.subscribers, float64(s.Subscribers))
	gauge(p.unarchived, float64(s.Retention.Unarchived))
	gauge(p.uptime, time.Since(p.started).Seconds())
	count(p.failures, s.WriteFailures)
	count(p.told, s.LettersTold)
	count(p.untold, s.LettersUntold)
	count(p.rung, s.Rung)
	count(p.parked, s.Parked)
	count(p.unmirrored, s.Unmirrored)
	count(p.pruned, s.Retention.Pruned)
	count(p.unpruned, s.Retention.Failed)
	to <- batches(p.moves, s.Moves)
	to <- batches(p.opens, s.Opens)
}

// batches are how many rows shared commits.
func batches(d *prometheus.Desc, b postadjudication.Batches) prometheus.Metric {
	below, all := make(map[float64]uint64, len(b.Commits)), uint64(0)
	for i, n := range b.Commits {
		all += n
		below[float64(postadjudication.BatchBounds[i])] = all
	}
	return prometheus.MustNewConstHistogram(d, all, float64(b.Rows), below)
}

// journal shows what the database tells of all processes.
type journal struct {
	levels *levels
	log    *zap.Logger

	told, runs, oldest, atRisk, expiring, held *prometheus.Desc
}

func newJournal(of measured, log *zap.Logger) *journal {
	return &journal{
		levels: &levels{measure: of.Levels, now: time.Now}, log: log,
		told:     about("recourse_levels_measured", "Whether the levels could be measured; while 0 they are not shown."),
		runs:     about("recourse_runs", "Live runs by state, and open letters as dead_lettered; of all processes.", "state"),
		oldest:   about("recourse_oldest_due_age_seconds", "For how long the oldest run that waits has been due; 0 when none is."),
		atRisk:   about("recourse_money_at_risk_minor_units", "Reserved by cases with an open letter, in minor units.", "currency"),
		expiring: about("recourse_dead_letters_expiring", "Open dead letters that retention takes within seven days, or would have taken.", "family"),
		held:     about("recourse_dead_letters_held", "Open dead letters that somebody holds."),
	}
}

// Describe implements prometheus.Collector.
func (j *journal) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{j.told, j.runs, j.oldest, j.atRisk, j.expiring, j.held} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (j *journal) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, label ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label...)
	}
	l, err := j.levels.get(context.Background())
	if err != nil {
		j.log.Warn("the levels can't be measured", zap.Error(err))
		gauge(j.told, 0)
		return
	}
	gauge(j.told, 1)
	for state, n := range l.Runs {
		gauge(j.runs, float64(n), string(state))
	}
	age := time.Duration(0)
	if !l.OldestDue.IsZero() {
		age = max(0, time.Since(l.OldestDue))
	}
	gauge(j.oldest, age.Seconds())
	for currency, minor := range l.AtRisk {
		gauge(j.atRisk, float64(minor), currency)
	}
	for family, n := range l.Expiring {
		gauge(j.expiring, float64(n), family)
	}
	gauge(j.held, float64(l.Held))
}
