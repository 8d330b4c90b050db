package app

import "runtime/debug"

// roomy is the collector's percentage while settlements are executed. A worker keeps
// some ten megabytes and allocates fifteen times as much in a second of full load: at
// the usual 100 a sixth more of its time goes into collecting, to save tens of megabytes.
const roomy = 400

const collectorVariable = "GOGC"

// makeRoom lets the collector run more rarely, unless the environment says how often.
// restore undoes it.
func (m *Main) makeRoom() (restore func()) {
	if m.collects {
		return func() {}
	}
	before := debug.SetGCPercent(roomy)
	return func() { debug.SetGCPercent(before) }
}
