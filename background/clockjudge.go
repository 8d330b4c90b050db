package background

import (
	"fmt"
	"slices"
	"time"
)

// ClockBound is by how much the clock of a process may differ from the one that all go
// by, which is the database's.
const ClockBound = time.Second

const (
	clockReadings = 60 // of which the best counts
	clockAgree    = 3  // readings that must agree after a change of the server
)

// ClockReading is what the database said of its clock.
type ClockReading struct {
	At     time.Time
	Server string // which server said it: another system, timeline or start is another
}

// clockSample is a reading with the times around it, on the clocks of this process. The
// monotonic one can't be set: that the database's moves against it is the database's
// doing, or this machine was suspended.
type clockSample struct {
	sent, received time.Duration // monotonic, since the process began
	wall           time.Time     // of this machine, when it was received
	read           ClockReading
}

// clockMark is what a sample tells: where the database's clock stood when the process
// began, and by how much that may be wrong at most, which is half the round trip.
type clockMark struct {
	zero time.Time
	err  time.Duration
}

func (s clockSample) mark() clockMark {
	return clockMark{zero: s.read.At.Add(-(s.sent + s.received) / 2), err: (s.received-s.sent)/2 + time.Microsecond}
}

func (m clockMark) agrees(other clockMark) bool {
	return m.zero.Sub(other.zero).Abs() <= m.err+other.err
}

// clockJudge decides what time it is by samples of the database's clock. It is pure: times
// and round trips come in, decisions go out.
//
//   - Of the last 60 samples the one with the shortest round trip counts, and it is
//     followed only where it differs by more than its own error.
//   - When the server changes, or its clock jumps by over ClockBound, the old time goes on
//     until three samples in a row agree on the new one. Nothing is claimed until then.
//   - A machine whose own clock is off by over ClockBound, which most other processes do
//     not share, claims nothing: its clock was changed, or its measurement is spoilt. One
//     that is alone, or off like the others, goes by the database's.
type clockJudge struct {
	held    clockMark // what is gone by; zero before the first sample
	server  string
	marks   []clockMark // that agree, the oldest first
	changed []clockMark // since the server changed; empty when it is settled
	offset  time.Duration
}

// observe takes a sample in.
func (j *clockJudge) observe(s clockSample) {
	m := s.mark()
	switch {
	case j.held.zero.IsZero():
		j.settle(s.read.Server, m)
	case len(j.changed) > 0:
		j.again(s.read.Server, m)
	case s.read.Server != j.server || m.zero.Sub(j.held.zero).Abs() > m.err+j.held.err+ClockBound:
		j.server, j.changed = s.read.Server, []clockMark{m}
	default:
		j.follow(m)
	}
	j.offset = j.held.zero.Add(s.received).Sub(s.wall)
}

// again takes a sample in while the change of a server is looked at.
func (j *clockJudge) again(server string, m clockMark) {
	if server != j.server || slices.ContainsFunc(j.changed, func(c clockMark) bool { return !c.agrees(m) }) {
		j.server, j.changed = server, j.changed[:0]
	}
	if j.changed = append(j.changed, m); len(j.changed) >= clockAgree {
		j.settle(server, j.changed...)
	}
}

func (j *clockJudge) settle(server string, marks ...clockMark) {
	j.server, j.marks, j.changed = server, marks, nil
	j.held = j.best()
}

func (j *clockJudge) follow(m clockMark) {
	if !j.best().agrees(m) {
		j.marks = j.marks[:0] // it drifted away from them
	}
	if j.marks = append(j.marks, m); len(j.marks) > clockReadings {
		j.marks = slices.Delete(j.marks, 0, 1)
	}
	if best := j.best(); best.zero.Sub(j.held.zero).Abs() > best.err {
		j.held = best
	}
}

func (j *clockJudge) best() clockMark {
	return slices.MinFunc(j.marks, func(a, b clockMark) int { return int(a.err - b.err) })
}

// refuses says why nothing may be claimed, by what other live processes measure of their
// clocks; empty when something may.
func (j *clockJudge) refuses(others []time.Duration) string {
	if len(j.changed) > 0 {
		return "the database's server or its clock has changed: nothing is claimed until three beats agree on the time"
	}
	shared := 0
	for _, o := range others {
		if (o - j.offset).Abs() <= ClockBound {
			shared++
		}
	}
	if j.offset.Abs() <= ClockBound || 2*shared >= len(others) {
		return ""
	}
	return fmt.Sprintf("the clock of this machine is %s from the database's, that of %d of %d other processes is not: nothing is claimed until it is set",
		j.offset.Round(time.Millisecond).Abs(), len(others)-shared, len(others))
}
