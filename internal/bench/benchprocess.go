package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// jobVariable is the environment variable with the job of a process.
const jobVariable = "RECOURSE_BENCH_JOB"

// job is the work of one process of the bench: a measurement, or its preloading.
type job struct {
	System, Workload string
	Tasks            int
	Preload          bool // submit the tasks and end

	Slots, Servers, Submitters int
	Poll, Quiet                time.Duration
	DatabaseURL, RedisURL      string
	OwnerURL                   string // of the database, for statements that the role of DatabaseURL may not run
	PostgresPID, RedisPID      int
	Profile                    string // file for the CPU profile; none when empty
}

// delegate runs a job in a process of its own, so that its CPU and memory are measured
// alone.
func (j job) delegate(ctx context.Context) (metrics, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	c := exec.CommandContext(ctx, self)
	c.Env = append(os.Environ(), jobVariable+"="+string(text))
	c.Stdout, c.Stderr = &out, os.Stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w", j.System, j.Workload, err)
	}
	var m metrics
	return m, json.Unmarshal(out.Bytes(), &m)
}

// runDelegated runs the job that delegate put into the environment; false when there is none.
func runDelegated(out io.Writer) (bool, error) {
	text, ok := os.LookupEnv(jobVariable)
	if !ok {
		return false, nil
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return true, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.timeout())
	defer cancel()
	m, err := j.do(ctx)
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(out).Encode(m)
}

// timeout is how long one job may take. Thousandth pages of lists and a million submissions take long.
func (j job) timeout() time.Duration {
	if j.Preload {
		return 10*time.Minute + time.Duration(j.Tasks)*time.Millisecond
	}
	if j.Workload == lettersWorkload {
		return 10*time.Minute + time.Duration(j.Tasks)*5*time.Millisecond
	}
	return 10 * time.Minute
}

// The systems.
const (
	recourse = "recourse"
	byHand   = "asynq"
	river    = "river"
)

var systemNames = []string{recourse, byHand, river}

// system is one implementation of settlements, opened on a database with its schema. It
// adds its attempts, their answers and the ends to the record that it was opened with.
type system interface {
	// submit submits task i, which is durable when submit returns.
	submit(ctx context.Context, i int) error
	// work executes what is due until ctx ends, then stops gracefully.
	work(ctx context.Context) error
	close() error
}

// systemKind makes systems of one kind.
type systemKind struct {
	// prepare makes the schema in an empty database, as its owner, and lets localpg.AppRole
	// work on it.
	prepare func(ctx context.Context, ownerURL string) error
	open    func(ctx context.Context, j job, r *record) (system, error)
	// verify checks that a database holds exactly what a workload leaves behind.
	verify func(ctx context.Context, j job) error
}

var systemKinds = map[string]systemKind{
	recourse: {prepareRecourse, openRecourse, verifyRecourse},
	byHand:   {prepareByHand, openByHand, verifyByHand},
	river:    {prepareRiver, openRiver, verifyRiver},
}
