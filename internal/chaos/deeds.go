package main

import (
	"strings"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// tamperLog is what was done to tasks behind Recourse's back. It is safe for concurrent use.
type tamperLog struct {
	mu  sync.Mutex
	all map[string][]tampering // by run
}

// tampering is something that was done to a task of a run, and what receipts may call it.
type tampering struct {
	at          time.Time
	reasonCodes []string
}

// maxTamperClockSkew is how far before a deed its receipt may lie: a worker's clock may be off.
const maxTamperClockSkew = 10 * time.Second

func newTamperLog() *tamperLog { return &tamperLog{all: map[string][]tampering{}} }

// record notes what was done to a task.
func (d *tamperLog) record(task string, at time.Time, reasonCodes ...string) {
	run, _, _ := strings.Cut(task, ".")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all[run] = append(d.all[run], tampering{at, reasonCodes})
}

// explains reports whether somebody did to a task of a run what a receipt says.
func (d *tamperLog) explains(run background.RunID, what string, at time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, done := range d.all[run.String()] {
		for _, name := range done.reasonCodes {
			if name == what && at.After(done.at.Add(-maxTamperClockSkew)) {
				return true
			}
		}
	}
	return false
}

// checkTampering holds every receipt that blames somebody against what was done.
func (v *verification) checkTampering(c *caseTrail, d *tamperLog) {
	for _, r := range c.receipts {
		if r.Subtype != receipts.OutOfBandChangeDetected {
			continue
		}
		v.OutOfBand[r.p.ReasonCode]++
		if !d.explains(r.Run, r.p.ReasonCode, r.At) {
			v.FalseReceipts++
			v.fail("a receipt of run %s says %s, and nobody did that to its task %s", r.Run, r.p.ReasonCode, r.p.DispatchReference)
		}
	}
}
