package main

import (
	"strings"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// deeds is what was done to tasks behind Recourse's back. It is safe for concurrent use.
type deeds struct {
	mu  sync.Mutex
	all map[string][]deed // by run
}

// deed is something that was done to a task of a run, and what receipts may call it.
type deed struct {
	at    time.Time
	calls []string
}

// deedClocks is how far before a deed its receipt may lie: a worker's clock may be off.
const deedClocks = 10 * time.Second

func newDeeds() *deeds { return &deeds{all: map[string][]deed{}} }

// did notes what was done to a task.
func (d *deeds) did(task string, at time.Time, calls ...string) {
	run, _, _ := strings.Cut(task, ".")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all[run] = append(d.all[run], deed{at, calls})
}

// explains reports whether somebody did to a task of a run what a receipt says.
func (d *deeds) explains(run background.RunID, what string, at time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, deed := range d.all[run.String()] {
		for _, name := range deed.calls {
			if name == what && at.After(deed.at.Add(-deedClocks)) {
				return true
			}
		}
	}
	return false
}

// touched holds every receipt that blames somebody against what was done.
func (v *verdict) touched(c *trail, d *deeds) {
	for _, r := range c.receipts {
		if r.Subtype != receipts.OutOfBandChangeDetected {
			continue
		}
		v.Touched[r.p.ReasonCode]++
		if !d.explains(r.Run, r.p.ReasonCode, r.At) {
			v.False++
			v.breaks("a receipt of run %s says %s, and nobody did that to its task %s", r.Run, r.p.ReasonCode, r.p.DispatchReference)
		}
	}
}
