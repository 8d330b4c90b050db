package background

// Stats are counts of one process.
type Stats struct {
	Running       int    // handlers being called
	Waiting       int    // runs waiting in place for their next attempt
	Abandoned     int    // calls that outlived their attempt and have not answered yet
	WriteFailures uint64 // failed tries to write a move, since the start
	Braked        int    // brakes that are not released
	Parked        uint64 // deliveries let go of because a brake was pulled, since the start
	Rung          uint64 // bells rung again by the sweeper, since the start
	Unmirrored    uint64 // mirrors of dead letters removed from asynq's archive, since the start
	MirrorLooks   uint64 // times that asynq's archive was looked through, since the start
	Paused        int    // queues that somebody paused in asynq, as last seen
}

// Stats counts now.
func (m *Manager) Stats() Stats {
	return Stats{
		Running:       int(m.running.Load()),
		Waiting:       int(m.waiting.Load()),
		Abandoned:     int(m.abandoned.Load()),
		WriteFailures: m.health.failures.Load(),
		Braked:        len(*m.brakes.known.Load()),
		Parked:        m.brakes.parked.Load(),
		Rung:          m.sweep.rung.Load(),
		Unmirrored:    m.mirrors.pruned.Load(),
		MirrorLooks:   m.mirrors.looks.Load(),
		Paused:        len(*m.mirrors.paused.Load()),
	}
}

// Paused names the queues that somebody paused in asynq, as last seen. None of their
// runs is delivered until they go on.
func (m *Manager) Paused() []string { return *m.mirrors.paused.Load() }
