package main

// The workloads; doc.go and -h say what they are.
const (
	settleWorkload    = "settle"
	drainWorkload     = "drain"
	deadWorkload      = "dead"
	precisionWorkload = "precision"
	idleWorkload      = "idle"
	memoryWorkload    = "memory"
	lettersWorkload   = "letters"
	bulkWorkload      = "bulk"
	flushWorkload     = "flush"
	soakWorkload      = "soak"
)

var workloadNames = []string{settleWorkload, drainWorkload, deadWorkload, precisionWorkload, idleWorkload, memoryWorkload, lettersWorkload, bulkWorkload, flushWorkload, soakWorkload}

// Upper bounds of the workloads that go by the clock.
const (
	precisionTasks = 100
	idleTasks      = 200
)

// allFail workloads let every attempt fail.
func allFail(workload string) bool { return workload == deadWorkload || workload == precisionWorkload }

// preloaded workloads find their tasks submitted.
func preloaded(workload string) bool {
	return workload == drainWorkload || workload == memoryWorkload || workload == lettersWorkload || workload == bulkWorkload || workload == flushWorkload
}

// sizes are the numbers of tasks that a workload is measured with, one after the
// other.
func (o options) sizes(workload string) []int {
	switch workload {
	case deadWorkload:
		return []int{max(1, o.tasks/2)}
	case precisionWorkload:
		return []int{min(o.tasks, precisionTasks)}
	case idleWorkload:
		return []int{min(o.tasks, idleTasks)}
	case flushWorkload:
		return []int{o.pending}
	case memoryWorkload:
		return []int{0, o.pending}
	}
	return []int{o.tasks}
}

// recourseOnly are the workloads that only recourse has.
func recourseOnly(workload string) bool {
	return workload == memoryWorkload || workload == lettersWorkload || workload == bulkWorkload || workload == flushWorkload || workload == soakWorkload
}

// trial is one measurement of a run.
type trial struct {
	system, workload string
	round, tasks     int
}

// trials lists the measurements in order. Which system goes first changes from round
// to round, so that none always has the warmest or the fullest disk.
func (o options) trials() []trial {
	var all []trial
	for round := range o.rounds {
		for _, w := range o.workloads {
			for i := range o.systems {
				s := o.systems[(i+round)%len(o.systems)]
				if recourseOnly(w) && s != recourse {
					continue
				}
				for _, n := range o.sizes(w) {
					all = append(all, trial{system: s, workload: w, round: round + 1, tasks: n})
				}
			}
		}
	}
	return all
}
