package main

import "fmt"

// lineMaker makes lines out of ordinary ones.
type lineMaker struct {
	ordinary []line
	used     map[string]bool // transactions that already have a derived line
	made     []line
}

// The places of a derived line: right after the ordinary one, some lines later, or
// after all ordinary lines, when those have ended.
const (
	distanceNext     = 0.5
	distanceLater    = 30.5
	distanceAfterAll = 1000
)

// conflictLines returns the lines that contradict, repeat or supersede ordinary ones.
func conflictLines(ordinary []line) []line {
	m := &lineMaker{ordinary: ordinary, used: map[string]bool{}}
	m.addRepeats()
	m.addGenerations()
	m.addEscrowConflicts()
	return m.made
}

func (m *lineMaker) addRepeats() {
	for i, o := range m.pick(8, "ok", anyLine) {
		m.addCopy(o, duplicate, []float64{distanceNext, distanceLater}[i%2])
	}
	for _, o := range m.pick(5, "ok", anyLine) {
		l := m.addReadjudication(o, otherContent, distanceNext)
		l.Amount.Minor -= l.Amount.Minor / 5
	}
	for i, o := range m.pick(5, "ok", anyLine) {
		l := m.addReadjudication(o, opposite, []float64{distanceNext, distanceLater}[i%2])
		l.Outcome = oppositeOutcome(o.Outcome)
	}
}

func (m *lineMaker) addGenerations() {
	for _, o := range m.pick(3, "retryable twice, ok", anyLine) {
		m.addReadjudication(o, afterLive, distanceNext).Generation = 2
	}
	dead := append(m.pick(4, "refused", anyLine), m.pick(2, "retryable", anyLine)...)
	for i, o := range dead {
		l := m.addReadjudication(o, afterDead, distanceAfterAll)
		l.Generation, l.Simulate = 2, "ok"
		if i == 0 { // the second decision goes the other way
			l.Outcome = oppositeOutcome(o.Outcome)
		}
	}
	for _, o := range dead[1:3] {
		m.addReadjudication(o, stale, 2*distanceAfterAll).Generation = 1
	}
	for _, o := range m.pick(2, "partial", anyLine) {
		l := m.addReadjudication(o, afterPartial, distanceAfterAll)
		l.Generation, l.Simulate = 2, "ok"
		l.Amount.Minor /= 2 // the service rounds the part that it moves up
	}
}

func (m *lineMaker) addEscrowConflicts() {
	decided := func(l line) bool { return l.Amount == l.Held }
	for i, o := range m.pick(5, "ok", decided) {
		m.addOnSameEscrow(o, exceeds, []float64{distanceNext, distanceLater}[i%2]).Amount.Minor = o.Held.Minor/4 + 1
	}
	slack := func(l line) bool { return l.Held.Minor > 2*l.Amount.Minor }
	for _, o := range m.pick(3, "ok", slack) {
		l := m.addOnSameEscrow(o, otherHeld, distanceLater)
		l.Amount.Minor = o.Amount.Minor / 10
		l.Held.Minor += o.Amount.Minor
	}
	for _, o := range m.pick(2, "ok", slack) {
		l := m.addOnSameEscrow(o, otherHeld, distanceLater)
		l.Amount.Minor = o.Amount.Minor / 10
		l.Amount.Currency = map[bool]string{true: "EUR", false: "USD"}[o.Amount.Currency == "USD"]
		l.Held.Currency = l.Amount.Currency
	}
}

func anyLine(line) bool { return true }

// pick returns n ordinary lines of a kind that have no derived line yet.
func (m *lineMaker) pick(n int, kind string, fits func(line) bool) []line {
	var out []line
	for i, o := range m.ordinary {
		if len(out) == n {
			break
		}
		// One in three, so that the derived lines are spread over the file.
		if o.kind != kind || m.used[o.TransactionReceiptID] || !fits(o) || kind == "ok" && hashBelow(3, "take %d", i) > 0 {
			continue
		}
		m.used[o.TransactionReceiptID] = true
		out = append(out, o)
	}
	if len(out) < n {
		panic(fmt.Sprintf("%d of the %d lines wanted are there: %s", len(out), n, kind))
	}
	return out
}

// addCopy adds an unchanged copy at a distance.
func (m *lineMaker) addCopy(o line, kind string, distance float64) *line {
	o.kind = kind
	o.at += distance
	m.made = append(m.made, o)
	return &m.made[len(m.made)-1]
}

// addReadjudication adds another adjudication of the same transaction. The pointer is valid until
// the next line is added.
func (m *lineMaker) addReadjudication(o line, kind string, distance float64) *line {
	l := m.addCopy(o, kind, distance)
	label := fmt.Sprint("made ", len(m.made))
	when := min(l.at, float64(len(m.ordinary)))
	l.SubmissionReceiptID = id("sub_", when+0.2, label)
	l.AdjudicationID = id("adj_", when+0.6, label)
	return l
}

// addOnSameEscrow adds another transaction on the same escrow.
func (m *lineMaker) addOnSameEscrow(o line, kind string, distance float64) *line {
	l := m.addReadjudication(o, kind, distance)
	l.TransactionReceiptID = id("txr_", l.at, fmt.Sprint("made ", len(m.made)))
	return l
}

func oppositeOutcome(outcome string) string {
	if outcome == "release" {
		return "refund"
	}
	return "release"
}
