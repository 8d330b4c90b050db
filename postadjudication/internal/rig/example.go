package rig

import (
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Example opens a service for an Example function, which has no testing.T, and starts its workers. What would
// fail a test panics. stop ends the service and its servers.
func Example(change ...func(*postadjudication.Config)) (r *Rig, stop func()) {
	t := testkit.NewExample()
	return New(t, change...).StartWorkers(), t.Stop
}
