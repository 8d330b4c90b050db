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
	}
}
