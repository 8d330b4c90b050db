package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if mine, err := runDelegated(os.Stdout); mine {
		exit(err)
	}
	o, err := parseOptions(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = bench(ctx, o, os.Stdout, os.Stderr)
	cancel()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// bench runs every trial, prints each as a line, and the tables at the end.
func bench(ctx context.Context, o options, lines, table io.Writer) (err error) {
	s, err := startServers(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var all []result
	for i, t := range o.trials() {
		m, err := s.measure(ctx, o, t, fmt.Sprintf("bench_%d", i))
		if err != nil {
			return fmt.Errorf("%s %s, round %d: %w", t.system, t.workload, t.round, err)
		}
		r := result{System: t.system, Workload: t.workload, Round: t.round, Tasks: t.tasks, Metrics: m}
		if err := json.NewEncoder(lines).Encode(r); err != nil {
			return err
		}
		all = append(all, r)
	}
	ratios(all)
	return writeTables(table, o, all)
}

// measure runs one trial on a fresh database and verifies the result.
func (s *servers) measure(ctx context.Context, o options, t trial, database string) (m metrics, err error) {
	j := job{
		System: t.system, Workload: t.workload, Tasks: t.tasks, Slots: o.slots, Servers: o.servers, Submitters: o.submitters,
		Poll: o.poll, Quiet: o.quiet, DatabaseURL: s.postgres.AppURL(database), OwnerURL: s.postgres.URL(database), RedisURL: s.redis.URL(),
		PostgresPID: s.postgres.PID(), RedisPID: s.redis.PID(),
	}
	if err := s.createDatabase(ctx, database); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.dropDatabase(context.WithoutCancel(ctx), database)) }()
	if err := systemKinds[t.system].prepare(ctx, j.OwnerURL); err != nil {
		return nil, err
	}
	if preloaded(t.workload) {
		first := j
		first.Preload = true
		if _, err := first.delegate(ctx); err != nil {
			return nil, err
		}
	}
	if o.profile != "" {
		j.Profile = fmt.Sprintf("%s.%s.%s.%d.pprof", o.profile, t.system, t.workload, t.round)
	}
	before, err := s.written(ctx, database)
	if err != nil {
		return nil, err
	}
	if m, err = j.delegate(ctx); err != nil {
		return nil, err
	}
	after, err := s.written(ctx, database)
	if err != nil {
		return nil, err
	}
	if t.tasks > 0 {
		m[commits], m[walBytes] = (after.commits-before.commits)/float64(t.tasks), (after.wal-before.wal)/float64(t.tasks)
	}
	return m, systemKinds[t.system].verify(ctx, j)
}
