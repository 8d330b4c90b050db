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

	stale *prometheus.Desc // claims that were not called on
	clock *prometheus.Desc

	running, waiting, abandoned, failures, rung, uptime, moves, opens, unreadable, unrecordable, braked, parked, stalled, stalledRuns, paused, unmirrored, pruned, unpruned, unarchived *prometheus.Desc

	lookups *prometheus.Desc // about dead letters of unknown outcome
}

func newProcess(of measured, started time.Time) *process {
	return &process{
		of: of, started: started,
		running:      about("recourse_calls_running", "Calls of the escrow service in flight."),
		waiting:      about("recourse_runs_waiting_in_place", "Runs that wait for their next attempt in this process."),
		abandoned:    about("recourse_calls_abandoned", "Calls that outlived their attempt and have not answered yet."),
		stale:        about("recourse_stale_claims_total", "Claims that were too old to be called on: Postgres, or this machine, stood still. They spend nothing."),
		clock:        about("recourse_clock_offset_seconds", "How much later the database's clock is than this machine's. All times are the database's; a process whose clock alone is over a second off claims nothing."),
		failures:     about("recourse_evidence_write_failures_total", "Failed tries to write a move."),
		rung:         about("recourse_bells_rung_again_total", "Bells rung again by the sweeper."),
		braked:       about("recourse_brakes_not_released", "Circuit breakers that are not closed, as this process knows."),
		stalled:      about("recourse_breakers_stalled", "Circuit breakers behind which runs wait while no new case comes that could show whether the escrow service works: somebody has to look."),
		stalledRuns:  about("recourse_breakers_stalled_runs", "Runs that wait behind those, at most 1000 counted for each."),
		parked:       about("recourse_deliveries_parked_total", "Deliveries let go of because a circuit breaker was open."),
		paused:       about("recourse_queues_paused", "Queues that somebody paused in asynq: their runs are not delivered."),
		unmirrored:   about("recourse_mirrors_removed_total", "Mirrors of dead letters removed from asynq's archive."),
		pruned:       about("recourse_dead_letters_pruned_total", "Dead letters taken because their retention was over."),
		unpruned:     about("recourse_dead_letters_prune_failures_total", "Times that the end of a dead letter could not be announced, or the letter not be taken."),
		unarchived:   about("recourse_dead_letters_unarchived", "Dead letters of settlements that stay beyond their retention because there is no archive."),
		subscribers:  about("recourse_letter_subscribers", "Subscribers of dead letters in this process."),
		told:         about("recourse_letters_told_total", "Calls of subscribers of dead letters that returned."),
		untold:       about("recourse_letters_untold_total", "Calls of subscribers of dead letters that panicked."),
		unreadable:   about("recourse_runs_unreadable", "Runs met within ten minutes that this process can't read, as those of a newer version: they wait for one that can."),
		unrecordable: about("recourse_outcomes_unrecordable_total", "Outcomes that could not be recorded as they were: their runs are dead letters for a person."),
		lookups:      about("recourse_dead_letter_lookups_total", "Questions about dead letters of unknown outcome, and what they led to: asked, cleared (nothing was executed), closed (a payment was found).", "result"),
		uptime:       about("recourse_uptime_seconds", "Since this process opened its service."),
		moves:        about("recourse_move_commit_rows", "Moves of existing cases that shared a commit."),
		opens:        about("recourse_submit_commit_rows", "New cases that shared a commit."),
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
	gauge(p.stalled, float64(s.Stalled))
	gauge(p.stalledRuns, float64(s.StalledRuns))
	gauge(p.paused, float64(s.Paused))
	gauge(p.subscribers, float64(s.Subscribers))
	gauge(p.unarchived, float64(s.Retention.Unarchived))
	gauge(p.clock, s.ClockOffset.Seconds())
	gauge(p.uptime, time.Since(p.started).Seconds())
	gauge(p.unreadable, float64(s.Unreadable))
	count(p.unrecordable, s.Unrecordable)
	count(p.failures, s.WriteFailures)
	count(p.stale, s.StaleClaims)
	count(p.told, s.LettersTold)
	count(p.untold, s.LettersUntold)
	count(p.rung, s.Rung)
	count(p.parked, s.Parked)
	count(p.unmirrored, s.Unmirrored)
	count(p.pruned, s.Retention.Pruned)
	count(p.unpruned, s.Retention.Failed)
	for result, n := range map[string]uint64{"asked": s.Lookups.Asked, "cleared": s.Lookups.Cleared, "closed": s.Lookups.Closed} {
		to <- prometheus.MustNewConstMetric(p.lookups, prometheus.CounterValue, float64(n), result)
	}
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

	told, runs, oldest, atRisk, expiring, held, unserved, uncalled, unknown, excesses, breached, brokeGlass, unfolded *prometheus.Desc
}

func newJournal(of measured, log *zap.Logger) *journal {
	return &journal{
		levels: &levels{measure: of.Levels, now: time.Now}, log: log,
		told:       about("recourse_levels_measured", "Whether the levels could be measured; while 0 they are not shown."),
		runs:       about("recourse_runs", "Live runs by state, and open letters as dead_lettered; of all processes.", "state"),
		oldest:     about("recourse_oldest_due_age_seconds", "For how long the oldest run that waits has been due; 0 when none is."),
		atRisk:     about("recourse_money_at_risk_minor_units", "Reserved by cases with an open letter, in minor units.", "currency"),
		expiring:   about("recourse_dead_letters_expiring", "Open dead letters that retention takes within seven days, or would have taken.", "family"),
		held:       about("recourse_dead_letters_held", "Open dead letters that somebody holds."),
		unserved:   about("recourse_runs_unserved", "Live runs in queues that no running process serves: nobody executes them."),
		uncalled:   about("recourse_runs_uncalled", "Live runs and open dead letters of settlements whose escrow service no running process calls: nobody executes them or asks about them."),
		excesses:   about("recourse_conservation_breaches_total", "Payments beyond what was adjudicated; of all processes."),
		breached:   about("recourse_escrows_breached", "Escrows that have committed more than they hold."),
		brokeGlass: about("recourse_break_glass_total", "Bulk plans that one person let run for an incident, where two are asked for; of all processes."),
		unfolded:   about("recourse_escrow_delta_oldest_age_seconds", "Age of the oldest change of an escrow's committed sum that its row does not show yet; 0 when there is none."),
		unknown:    about("recourse_dead_letters_unknown", "Open dead letters of settlements of unknown outcome, by what they wait for: lookup, person.", "waits_for"),
	}
}

// Describe implements prometheus.Collector.
func (j *journal) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{j.told, j.runs, j.oldest, j.atRisk, j.expiring, j.held, j.unserved, j.uncalled, j.unknown, j.excesses, j.breached, j.brokeGlass, j.unfolded} {
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
	gauge(j.oldest, ageOf(l.OldestDue))
	gauge(j.unfolded, ageOf(l.Unfolded))
	gauge(j.breached, float64(l.Breaches.Escrows))
	to <- prometheus.MustNewConstMetric(j.excesses, prometheus.CounterValue, float64(l.Excesses))
	to <- prometheus.MustNewConstMetric(j.brokeGlass, prometheus.CounterValue, float64(l.BrokeGlass))
	for currency, minor := range l.AtRisk {
		gauge(j.atRisk, float64(minor), currency)
	}
	for family, n := range l.Expiring {
		gauge(j.expiring, float64(n), family)
	}
	gauge(j.held, float64(l.Held))
	gauge(j.unserved, float64(l.Unserved))
	gauge(j.uncalled, float64(l.Uncalled))
	gauge(j.unknown, float64(l.Unknown.Lookup), "lookup")
	gauge(j.unknown, float64(l.Unknown.Person), "person")
}

// ageOf is how many seconds ago a time was; 0 when there is none.
func ageOf(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, time.Since(at).Seconds())
}
