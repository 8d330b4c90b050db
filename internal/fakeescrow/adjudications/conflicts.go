package main

import "fmt"

// maker makes lines out of ordinary ones.
type maker struct {
	ordinary []line
	used     map[string]bool // transactions that something was made of
	made     []line
}

// The places of a made line: right behind the ordinary one, some lines later, or
// behind all ordinary lines, when those have come to rest.
const (
	behind = 0.5
	later  = 30.5
	atRest = 1000
)

// conflicts makes the lines that contradict, repeat or supersede ordinary ones.
func conflicts(ordinary []line) []line {
	m := &maker{ordinary: ordinary, used: map[string]bool{}}
	m.repeats()
	m.generations()
	m.escrows()
	return m.made
}

func (m *maker) repeats() {
	for i, o := range m.take(8, "ok", anyLine) {
		m.place(o, duplicate, []float64{behind, later}[i%2])
	}
	for _, o := range m.take(5, "ok", anyLine) {
		l := m.again(o, otherContent, behind)
		l.Amount.Minor -= l.Amount.Minor / 5
	}
	for i, o := range m.take(5, "ok", anyLine) {
		l := m.again(o, opposite, []float64{behind, later}[i%2])
		l.Outcome = other(o.Outcome)
	}
}

func (m *maker) generations() {
	for _, o := range m.take(3, "retryable twice, ok", anyLine) {
		m.again(o, afterLive, behind).Generation = 2
	}
	dead := append(m.take(4, "refused", anyLine), m.take(2, "retryable", anyLine)...)
	for i, o := range dead {
		l := m.again(o, afterDead, atRest)
		l.Generation, l.Simulate = 2, "ok"
		if i == 0 { // the second decision goes the other way
			l.Outcome = other(o.Outcome)
		}
	}
	for _, o := range dead[1:3] {
		m.again(o, stale, 2*atRest).Generation = 1
	}
	for _, o := range m.take(2, "partial", anyLine) {
		l := m.again(o, afterPartial, atRest)
		l.Generation, l.Simulate = 2, "ok"
		l.Amount.Minor /= 2 // the service rounds the part that it moves up
	}
}

func (m *maker) escrows() {
	decided := func(l line) bool { return l.Amount == l.Held }
	for i, o := range m.take(5, "ok", decided) {
		m.beside(o, exceeds, []float64{behind, later}[i%2]).Amount.Minor = o.Held.Minor/4 + 1
	}
	slack := func(l line) bool { return l.Held.Minor > 2*l.Amount.Minor }
	for _, o := range m.take(3, "ok", slack) {
		l := m.beside(o, otherHeld, later)
		l.Amount.Minor = o.Amount.Minor / 10
		l.Held.Minor += o.Amount.Minor
	}
	for _, o := range m.take(2, "ok", slack) {
		l := m.beside(o, otherHeld, later)
		l.Amount.Minor = o.Amount.Minor / 10
		l.Amount.Currency = map[bool]string{true: "EUR", false: "USD"}[o.Amount.Currency == "USD"]
		l.Held.Currency = l.Amount.Currency
	}
}

func anyLine(line) bool { return true }

// take chooses n ordinary lines of a kind that nothing was made of yet.
func (m *maker) take(n int, kind string, fits func(line) bool) []line {
	var out []line
	for i, o := range m.ordinary {
		if len(out) == n {
			break
		}
		// One in three, so that what is made of them is spread over the file.
		if o.kind != kind || m.used[o.TransactionReceiptID] || !fits(o) || kind == "ok" && draw(3, "take %d", i) > 0 {
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

// place puts an unchanged copy at a distance.
func (m *maker) place(o line, kind string, distance float64) *line {
	o.kind = kind
	o.at += distance
	m.made = append(m.made, o)
	return &m.made[len(m.made)-1]
}

// again is another adjudication of the same transaction. The pointer is good until
// the next line is made.
func (m *maker) again(o line, kind string, distance float64) *line {
	l := m.place(o, kind, distance)
	label := fmt.Sprint("made ", len(m.made))
	when := min(l.at, float64(len(m.ordinary)))
	l.SubmissionReceiptID = id("sub_", when+0.2, label)
	l.AdjudicationID = id("adj_", when+0.6, label)
	return l
}

// beside is a transaction of its own on the same escrow.
func (m *maker) beside(o line, kind string, distance float64) *line {
	l := m.again(o, kind, distance)
	l.TransactionReceiptID = id("txr_", l.at, fmt.Sprint("made ", len(m.made)))
	return l
}

func other(outcome string) string {
	if outcome == "release" {
		return "refund"
	}
	return "release"
}
