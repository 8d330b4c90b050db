package background

import "time"

// lostDeliveries are tasks that asynq shows as active and that no process holds: those of a
// process that was lost, also of runs that it had not claimed yet or waited with, and
// those that were taken from their queue by a question whose answer was lost.
//
// It tells when active tasks are to be taken for ghosts. A second bell for a run that
// a process holds does no harm, so too often is better than too late.
type lostDeliveries struct {
	times  []time.Time // when to look, in order
	passes int         // for as many times through all runs, an active task may be a ghost
}

// lostDeliveryDelays are how long after tasks were lost from sight they are looked for. A
// question that was given up may wait in a stalled network, and take its task when
// that stall ends.
var lostDeliveryDelays = []time.Duration{0, 10 * time.Second, 30 * time.Second}

// lostDeliveryPasses covers runs that were due too short a time before to be looked at in
// the first round.
const lostDeliveryPasses = 3

// schedule tells that tasks were lost from sight at this time. What was lost before and is
// still to be looked for is looked for later than it would have been, but not never.
func (g *lostDeliveries) schedule(at time.Time) {
	g.times = g.times[:0]
	for _, after := range lostDeliveryDelays {
		g.times = append(g.times, at.Add(after))
	}
}

// due reports whether it is time to begin to look, from the first run on. A look
// that is going on goes on from where it is, for longer: else one that is feared all
// the time would never come to the last run.
func (g *lostDeliveries) due(now time.Time) bool {
	wasActive := g.active()
	for len(g.times) > 0 && !now.Before(g.times[0]) {
		g.times, g.passes = g.times[1:], lostDeliveryPasses
	}
	return g.active() && !wasActive
}

// active reports whether an active task may be a ghost now.
func (g *lostDeliveries) active() bool { return g.passes > 0 }

// passDone tells that all runs have been looked at once more.
func (g *lostDeliveries) passDone() { g.passes = max(0, g.passes-1) }
