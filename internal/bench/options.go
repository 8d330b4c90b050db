package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// options of one run of the bench.
type options struct {
	systems, workloads         []string
	rounds, tasks, pending     int
	slots, servers, submitters int
	poll, quiet                time.Duration
	profile                    string
}

const usage = `bench measures recourse beside asynq with evidence by hand and River, on private servers.
One JSON line for each system, workload and round on stdout; the table of medians on stderr.

Workloads:
  settle     every task succeeds at once; submitted and executed at the same time
  drain      tasks are submitted first, then the workers start
  dead       every attempt fails; after three the task is dead
  precision  10 tasks a second, all failing: gaps between attempts, time to the death
  idle       nothing to do, then 5 tasks a second: CPU and time to the first attempt
  letters    lists of -n dead letters: every filter, every order, the first page and a deep one
  flush      Redis is emptied under -pending runs: how long until all are notified again
  jobs       64 workers fetch jobs over HTTP, each alone, and acknowledge them; River executes them in its process
  jobs10     the same, ten jobs a fetch
  enqueue    jobs are enqueued over HTTP, and nobody fetches them
  memory     resident memory of a recourse worker with no and with many pending runs

Flags:
`

// parseOptions reads the command line, and writes its errors to out.
func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() {
		_, _ = io.WriteString(out, usage) // the flag package ignores such an error too
		f.PrintDefaults()
	}
	chosen := f.String("systems", strings.Join(systemNames, ","), "systems to measure, in this order in the first round")
	loads := f.String("workloads", "settle,drain,dead,precision", "workloads, of settle,drain,dead,precision,idle,memory,letters,flush,jobs,jobs10,enqueue")
	f.IntVar(&o.rounds, "rounds", 3, "rounds; every system takes its turn in each")
	f.IntVar(&o.tasks, "n", 10_000, "tasks of settle and drain; dead takes half, precision at most 100, idle at most 200")
	f.IntVar(&o.pending, "pending", 200_000, "pending runs of memory and flush")
	f.IntVar(&o.slots, "slots", 100, "tasks executed at once")
	f.IntVar(&o.servers, "servers", 4, "asynq servers in a process of recourse; asynq by hand has one")
	f.IntVar(&o.submitters, "submitters", 32, "goroutines that submit, a task at a time each")
	f.DurationVar(&o.poll, "poll", 5*time.Millisecond, "how often an idle worker looks for tasks, in every system")
	f.DurationVar(&o.quiet, "quiet", 10*time.Second, "how long idle and memory look on")
	f.StringVar(&o.profile, "cpuprofile", "", "write CPU profiles to `prefix`.<system>.<workload>.<round>.pprof")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.systems, o.workloads = strings.Split(*chosen, ","), strings.Split(*loads, ",")
	return o, errors.Join(
		checkNames("system", o.systems, systemNames), checkNames("workload", o.workloads, workloadNames),
		positive("rounds", o.rounds), positive("n", o.tasks), positive("pending", o.pending), positive("slots", o.slots),
		positive("servers", o.servers), positive("submitters", o.submitters),
		positive("poll", int(o.poll)), positive("quiet", int(o.quiet)), noArguments(f.Args()),
	)
}

func checkNames(kind string, names, all []string) error {
	for _, n := range names {
		if !slices.Contains(all, n) {
			return fmt.Errorf("no %s %q; there are %s", kind, n, strings.Join(all, ", "))
		}
	}
	return nil
}

func positive(name string, n int) error {
	if n <= 0 {
		return fmt.Errorf("-%s must be positive", name)
	}
	return nil
}

func noArguments(args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected %q", args)
	}
	return nil
}
