package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// SettingsVariable is the environment variable whose JSON Settings make a program a remote worker.
const SettingsVariable = "RECOURSE_CHAOS_REMOTE"

// Settings of one process of remote workers.
type Settings struct {
	Name    string // each process has another one
	Door    string // URL before /ojs
	Ledger  string // URL
	Seed    uint64
	Workers int  // in the process
	Honest  bool // each attempt is made as it should be

	Pay          string  // URL of the payment service at which more workers pay adjudications
	Payers       []Payer // one worker each; nil: none pays
	PayTenant    string  // of the adjudications
	Misreporting string  // adjudications whose payload.executor is this word are reported with twice the sum paid
}

// Environment returns the variable that makes a program such a process.
func (s Settings) Environment() (string, error) {
	text, err := json.Marshal(s)
	return SettingsVariable + "=" + string(text), err
}

// Main runs remote workers and returns true if the environment has Settings. A program calls it first,
// and exits with the code if it was a process of remote workers.
func Main() (code int, isRemote bool) {
	text, isRemote := os.LookupEnv(SettingsVariable)
	if !isRemote {
		return 0, false
	}
	var s Settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fmt.Fprintf(os.Stderr, "remote: %s: %v\n", SettingsVariable, err)
		return 1, true
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintf(os.Stderr, "remote: %s: %v\n", s.Name, err)
		return 1, true
	}
	return 0, true
}

// run has workers fetch and execute jobs until ctx ends. What they have begun they finish.
func run(ctx context.Context, s Settings) error {
	failed := make(chan error, s.Workers+len(s.Payers))
	ctx, end := context.WithCancel(ctx)
	defer end()
	var all sync.WaitGroup
	for i := range s.Workers {
		w := &worker{
			name: fmt.Sprintf("%s.%d", s.Name, i), honest: s.Honest, rng: rand.New(rand.NewPCG(s.Seed, uint64(i))),
			door: newClient(s.Door, requestTimeout), ledger: newClient(s.Ledger, time.Minute),
		}
		all.Go(func() {
			if err := w.run(ctx); err != nil {
				failed <- err
				end()
			}
		})
	}
	for i, one := range s.Payers {
		door := newClient(s.Door, requestTimeout)
		door.token = one.Token
		w := &payer{
			name: fmt.Sprintf("%s.pay%d", s.Name, i), principal: one.Principal, habit: one.Habit, honest: s.Honest, rng: rand.New(rand.NewPCG(s.Seed, 1<<32+uint64(i))),
			door: door, ledger: newClient(s.Ledger, time.Minute), pay: newClient(s.Pay, requestTimeout), tenant: s.PayTenant, misreporting: s.Misreporting,
		}
		all.Go(func() {
			if err := w.run(ctx); err != nil {
				failed <- err
				end()
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// worker is one remote worker: a goroutine that fetches and executes one job after the other.
type worker struct {
	name         string
	honest       bool
	rng          *rand.Rand
	door, ledger client
	asked        int
}

// Queues are the queues of the load, in the order in which workers ask for them.
func Queues() []string { return []string{"mail", "report", "bulk"} }

// idle is how long a worker waits that was given nothing.
const idle = 250 * time.Millisecond

func (p *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		count, length := 1+p.rng.IntN(2), time.Duration(800+p.rng.IntN(1200))*time.Millisecond
		r := p.door.send(ctx, http.MethodPost, workersPath+"fetch", map[string]any{
			"queues": Queues(), "count": count, "worker_id": p.name, "visibility_timeout_ms": length.Milliseconds(),
		})
		var given struct {
			Jobs []job `json:"jobs"`
		}
		if r.status == http.StatusOK {
			if err := json.Unmarshal(r.body, &given); err != nil {
				return fmt.Errorf("a fetch was answered with %s", r)
			}
		}
		for _, j := range given.Jobs {
			a := attempt{worker: p, job: j, length: length}
			if err := p.ledger.post(context.WithoutCancel(ctx), a.entry(Entry{Kind: Fetched, Length: length.Milliseconds(), Sent: r.sent, Received: r.received})); err != nil {
				return err
			}
		}
		for _, j := range given.Jobs {
			if err := (&attempt{worker: p, job: j, length: length}).run(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
		if len(given.Jobs) == 0 {
			wait(ctx, idle)
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
