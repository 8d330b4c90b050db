package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/child"
)

// jobsProxy is the name of the proxy through which jobs are enqueued and fetched. It leads each
// connection to some worker that answers, as a load balancer does.
const jobsProxy = "jobs"

func (a *testbed) openJobsProxy(seed uint64) (err error) {
	var n atomic.Uint64
	a.proxies[jobsProxy], err = newProxyTo(func() string {
		h := a.fleet.anyReady(rand.New(rand.NewPCG(seed, n.Add(1))))
		if h == nil {
			return ""
		}
		return h.jobs
	})
	if err == nil {
		a.closers = append(a.closers, a.proxies[jobsProxy].close)
	}
	return err
}

// remoteJobs are the jobs of a run: who enqueues them, the remote workers, and their ledger.
type remoteJobs struct {
	load     *remote.Load
	ledger   *remote.Ledger
	log      io.Writer
	settings remote.Settings

	mu       sync.Mutex
	seats    []*child.Process // one process after the other has a seat; nil: the next one is not started
	honest   bool
	stopping bool
	crashes  []string
	loops    sync.WaitGroup
}

// thawAfter is how long a remote worker is frozen: longer than any lease.
const thawAfter = 3 * time.Second

// workersOfRemote is how many jobs a process of remote workers has in work.
const workersOfRemote = 3

// startJobs starts the ledger and the remote workers. Without jobs it returns nil, whose methods do nothing.
func (a *testbed) startJobs(ctx context.Context, o options) (*remoteJobs, error) {
	if o.jobRate == 0 {
		return nil, nil
	}
	kept, err := os.Create(filepath.Join(a.dir, "jobs.jsonl"))
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, kept.Close)
	ledger, err := remote.StartLedger(kept)
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, ledger.Close)
	door := "http://" + a.proxies[jobsProxy].addr()
	payers, err := makePayers(ctx, a)
	if err != nil {
		return nil, err
	}
	a.jobs = &remoteJobs{
		load: remote.NewLoad(door, o.seed), ledger: ledger, log: a.log,
		settings: remote.Settings{
			Door: door, Ledger: ledger.URL(), Seed: o.seed, Workers: workersOfRemote,
			Pay: "http://" + a.proxies["escrow"].addr(), Payers: payers, PayTenant: tenant, Misreporting: worker.Misreports,
		}, seats: make([]*child.Process, o.remotes),
	}
	for i := range a.jobs.seats {
		a.jobs.loops.Go(func() { a.jobs.supervise(i) })
	}
	return a.jobs, nil
}

// supervise starts a process of remote workers, wakes it when it has frozen, and starts the next one when it
// has died, until the jobs are stopped.
func (j *remoteJobs) supervise(seat int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		p, err := j.start(seat, n)
		if err != nil || p == nil {
			j.failed(err)
			return
		}
		ended := false
		for frozen := time.Duration(0); !ended; {
			select {
			case <-p.Done():
				ended = true
				continue
			case <-tick.C:
			}
			stopped, err := isStopped(p)
			j.failed(err)
			if !stopped {
				frozen = 0
				continue
			}
			if frozen += 100 * time.Millisecond; frozen >= thawAfter {
				j.failed(p.Signal(syscall.SIGCONT))
			}
		}
		// One that gets SIGTERM before it has begun ends by it.
		if code := p.Code(); code != 0 && code != 128+int(syscall.SIGKILL) && code != 128+int(syscall.SIGTERM) {
			j.failed(fmt.Errorf("remote worker %d.%d ended by itself with code %d", seat, n, code))
		}
	}
}

// start starts the nth process on a seat; nil when the jobs are stopped.
func (j *remoteJobs) start(seat, n int) (*child.Process, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopping {
		return nil, nil
	}
	s := j.settings
	s.Name, s.Seed, s.Honest = fmt.Sprintf("remote-%d.%d", seat, n), s.Seed<<20+uint64(seat)<<10+uint64(n), j.honest
	env, err := s.Environment()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	j.seats[seat], err = child.Start(child.Spec{Path: self, Env: []string{env}, Dir: os.TempDir(), Stdout: j.log, Stderr: j.log, ParentDeathSignal: syscall.SIGKILL})
	return j.seats[seat], err
}

func (j *remoteJobs) failed(err error) {
	if err == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.crashes = append(j.crashes, err.Error())
}

// run enqueues jobs and has people act on them until ctx ends, and returns when everything was answered.
func (j *remoteJobs) run(ctx context.Context, o options, logf func(string, ...any)) {
	if j == nil {
		return
	}
	var people sync.WaitGroup
	people.Go(func() {
		j.load.People(ctx, func(verb, detail string) { logf("%-24s %s", "people-job-"+verb, detail) })
	})
	j.load.Run(ctx, o.jobRate, o.settleTimeout)
	people.Wait()
}

// finishGrace is how long a remote worker may take to finish what it has begun.
const finishGrace = 10 * time.Second

// settle replaces the remote workers by honest ones, so that all jobs come to an end, and has a
// person retry a dead letter, so that also a short run on a slow machine has a retry.
func (j *remoteJobs) settle(ctx context.Context, o options, logf func(string, ...any)) error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	j.honest = true
	j.mu.Unlock()
	if err := j.end(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	logf("%-24s %s", "people-job-"+remote.Retry, j.load.Act(limited, remote.Retry, rand.New(rand.NewPCG(o.seed, 3))))
	return nil
}

// end ends all processes: in order, if they do within their time.
func (j *remoteJobs) end() error {
	j.mu.Lock()
	var now []*child.Process
	for _, p := range j.seats {
		if p != nil {
			now = append(now, p)
		}
	}
	j.mu.Unlock()
	errs := make([]error, len(now))
	var all sync.WaitGroup
	for i, p := range now {
		all.Go(func() { errs[i] = p.Stop(finishGrace, syscall.SIGTERM) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// stop ends the remote workers. It may be called again.
func (j *remoteJobs) stop() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	j.stopping = true
	j.mu.Unlock()
	err := j.end()
	j.loops.Wait()
	return err
}

// collectTimeout is how long the reading of all jobs may take.
const collectTimeout = 5 * time.Minute

// verify ends the remote workers and judges the jobs, while the servers still answer.
func (j *remoteJobs) verify(ctx context.Context, clock remote.Clock) (*remote.Verdict, error) {
	if j == nil {
		return nil, nil
	}
	if err := j.stop(); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	evidence, err := j.load.Collect(limited, j.ledger)
	if err != nil {
		return nil, err
	}
	evidence.Clock = clock
	v := remote.Verify(evidence)
	v.Broken = append(v.Broken, j.crashes...)
	return v, nil
}

// remoteSignal kills or freezes a process of remote workers. A frozen one is woken when its leases are over.
func remoteSignal(sig syscall.Signal) func(context.Context, *testbed, *rand.Rand) (string, error) {
	return func(_ context.Context, a *testbed, rng *rand.Rand) (string, error) {
		roll := rng.IntN(1 << 20)
		if a.jobs == nil {
			return "there are no jobs", nil
		}
		a.jobs.mu.Lock()
		defer a.jobs.mu.Unlock()
		i := roll % len(a.jobs.seats)
		p := a.jobs.seats[i]
		if p == nil {
			return "none has started", nil
		}
		return fmt.Sprintf("remote worker %d, %s", i, sig), p.Signal(sig)
	}
}
