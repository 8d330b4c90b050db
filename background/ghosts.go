package background

import "time"

// ghosts are tasks that asynq shows as active and that no process holds: those of a
// process that was lost, also of runs that it had not claimed yet or waited with, and
// those that were taken from their queue by a question whose answer was lost.
//
// It tells when active tasks are to be taken for ghosts. A second bell for a run that
// a process holds does no harm, so too often is better than too late.
type ghosts struct {
	looks  []time.Time // when to look, in order
	rounds int         // for as many times through all runs, an active task may be a ghost
}

// ghostLooks are how long after tasks were lost from sight they are looked for. A
// question that was given up may wait in a stalled network, and take its task when
// that stall ends.
var ghostLooks = []time.Duration{0, 10 * time.Second, 30 * time.Second}

// ghostRounds covers runs that were due too short a time before to be looked at in
// the first round.
const ghostRounds = 3

// fear tells that tasks were lost from sight at this time. What was lost before and is
// still to be looked for is looked for later than it would have been, but not never.
func (g *ghosts) fear(at time.Time) {
	g.looks = g.looks[:0]
	for _, after := range ghostLooks {
		g.looks = append(g.looks, at.Add(after))
	}
}

// rise reports whether it is time to begin to look, from the first run on. A look
// that is going on goes on from where it is, for longer: else one that is feared all
// the time would never come to the last run.
func (g *ghosts) rise(now time.Time) bool {
	walked := g.walk()
	for len(g.looks) > 0 && !now.Before(g.looks[0]) {
		g.looks, g.rounds = g.looks[1:], ghostRounds
	}
	return g.walk() && !walked
}

// walk reports whether an active task may be a ghost now.
func (g *ghosts) walk() bool { return g.rounds > 0 }

// round tells that all runs have been looked at once more.
func (g *ghosts) round() { g.rounds = max(0, g.rounds-1) }
