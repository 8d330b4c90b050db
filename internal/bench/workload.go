package main

// The workloads; -h describes them.
const (
	settleWorkload    = "settle"
	drainWorkload     = "drain"
	deadWorkload      = "dead"
	precisionWorkload = "precision"
	idleWorkload      = "idle"
	memoryWorkload    = "memory"
	lettersWorkload   = "letters"
	flushWorkload     = "flush"
	jobsWorkload      = "jobs"
	jobs10Workload    = "jobs10"
	enqueueWorkload   = "enqueue"
)

var workloadNames = []string{
	settleWorkload, drainWorkload, deadWorkload, precisionWorkload, idleWorkload, memoryWorkload, lettersWorkload, flushWorkload, jobsWorkload, jobs10Workload, enqueueWorkload,
}

// Upper bounds of the workloads that run at a rate.
const (
	precisionTasks = 100
	idleTasks      = 200
)

// allFail reports whether every attempt of a workload fails.
func allFail(workload string) bool { return workload == deadWorkload || workload == precisionWorkload }

// preloaded reports whether the tasks of a workload are submitted before.
func preloaded(workload string) bool {
	return workload == drainWorkload || workload == memoryWorkload || workload == lettersWorkload || workload == flushWorkload || workload == jobsWorkload || workload == jobs10Workload
}

// ofJobs reports whether a workload is one of remote workers. The peers execute it in their own process.
func ofJobs(workload string) bool {
	return workload == jobsWorkload || workload == jobs10Workload || workload == enqueueWorkload
}

// sizes returns the numbers of tasks that a workload is measured with, one after the
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

// recourseOnly reports whether a workload is for recourse only.
func recourseOnly(workload string) bool {
	return workload == memoryWorkload || workload == lettersWorkload || workload == flushWorkload
}

// trial is one measurement of a run.
type trial struct {
	system, workload string
	round, tasks     int
}

// trials returns the measurements in order. The first system changes from round to round, so
// that none always has the same state of the disk.
func (o options) trials() []trial {
	var all []trial
	for round := range o.rounds {
		for _, w := range o.workloads {
			for i := range o.systems {
				s := o.systems[(i+round)%len(o.systems)]
				if recourseOnly(w) && s != recourse || ofJobs(w) && s == byHand {
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
