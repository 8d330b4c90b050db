package main

// The workloads; doc.go and -h say what they are.
const (
	settle    = "settle"
	drain     = "drain"
	dead      = "dead"
	precision = "precision"
	idling    = "idle"
	memory    = "memory"
	lettering = "letters"
	bulking   = "bulk"
	flushing  = "flush"
	soaking   = "soak"
)

var workloadNames = []string{settle, drain, dead, precision, idling, memory, lettering, bulking, flushing, soaking}

// Upper bounds of the workloads that go by the clock.
const (
	precisionTasks = 100
	idleTasks      = 200
)

// failing workloads let every attempt fail.
func failing(workload string) bool { return workload == dead || workload == precision }

// preloaded workloads find their tasks submitted.
func preloaded(workload string) bool {
	return workload == drain || workload == memory || workload == lettering || workload == bulking || workload == flushing
}

// sizes are the numbers of tasks that a workload is measured with, one after the
// other.
func (o options) sizes(workload string) []int {
	switch workload {
	case dead:
		return []int{max(1, o.tasks/2)}
	case precision:
		return []int{min(o.tasks, precisionTasks)}
	case idling:
		return []int{min(o.tasks, idleTasks)}
	case flushing:
		return []int{o.pending}
	case memory:
		return []int{0, o.pending}
	}
	return []int{o.tasks}
}

// alone are the workloads that only recourse has.
func alone(workload string) bool {
	return workload == memory || workload == lettering || workload == bulking || workload == flushing || workload == soaking
}

// turn is one measurement of a run.
type turn struct {
	system, workload string
	round, tasks     int
}

// turns lists the measurements in order. Which system goes first changes from round
// to round, so that none always has the warmest or the fullest disk.
func (o options) turns() []turn {
	var all []turn
	for round := range o.rounds {
		for _, w := range o.workloads {
			for i := range o.systems {
				s := o.systems[(i+round)%len(o.systems)]
				if alone(w) && s != recourse {
					continue
				}
				for _, n := range o.sizes(w) {
					all = append(all, turn{system: s, workload: w, round: round + 1, tasks: n})
				}
			}
		}
	}
	return all
}
