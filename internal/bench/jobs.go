package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/ojs"
	"github.com/recourse-dev/recourse/postadjudication"
)

// remoteWorkers is how many workers fetch jobs over HTTP.
const remoteWorkers = 64

// jobServer is the system recourse for jobs: a server of Open Job Spec, with its clients and its workers
// in the same process, over HTTP on loopback. A job is done by acknowledging it.
type jobServer struct {
	jobClient
	job     job
	record  *record
	service *postadjudication.Service
	door    *door.Door
	server  *http.Server
	serving sync.WaitGroup
}

func openJobServer(ctx context.Context, j job, r *record) (*jobServer, error) {
	redis, err := asynq.ParseRedisURI(j.RedisURL)
	if err != nil {
		return nil, err
	}
	s, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: j.DatabaseURL, Redis: redis, Jobs: true, Poll: j.Poll, Executor: &instantExecutor{record: r}})
	if err != nil {
		return nil, err
	}
	out := &jobServer{job: j, record: r, service: s}
	if out.door, err = door.New(door.Config{Service: s, Keyless: &door.Keyless{Tenant: "bench"}}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	out.jobClient = newJobClient("http://" + listener.Addr().String())
	out.server = &http.Server{Handler: ojs.New(ojs.Config{Service: s, Door: out.door, Log: zap.NewNop()}), ReadHeaderTimeout: time.Minute}
	out.serving.Go(func() { _ = out.server.Serve(listener) }) // it ends with close
	return out, nil
}

func (s *jobServer) submit(ctx context.Context, i int) error {
	body := fmt.Appendf(nil, `{"id":%q,"type":"escrow.release","queue":"settlement","args":[%d,"txr_%d","esc_%d"]}`, uuid.Must(uuid.NewV7()), i, i, i)
	var made json.RawMessage
	if err := s.post(ctx, "/jobs", body, http.StatusCreated, &made); err != nil {
		return err
	}
	if s.job.Workload == enqueueWorkload {
		s.record.ended(i)
	}
	return nil
}

// work has workers fetch jobs and acknowledge each, beside what a serving process does.
func (s *jobServer) work(ctx context.Context) error {
	running := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	go func() { running <- s.service.Run(serving) }()
	failures := make([]error, remoteWorkers)
	var all sync.WaitGroup
	for w := range failures {
		if s.job.Workload == enqueueWorkload {
			break
		}
		all.Go(func() { failures[w] = s.fetchAll(ctx, w) })
	}
	all.Wait()
	<-ctx.Done()
	stop()
	return errors.Join(append(failures, <-running)...)
}

// fetchAll fetches jobs until ctx ends or none is left.
func (s *jobServer) fetchAll(ctx context.Context, worker int) error {
	count := 1
	if s.job.Workload == jobs10Workload {
		count = 10
	}
	want := fmt.Appendf(nil, `{"queues":["settlement"],"count":%d,"worker_id":"w%d"}`, count, worker)
	for ctx.Err() == nil && s.record.left.Load() > 0 {
		fetched, err := s.fetch(ctx, want)
		if err != nil {
			return err
		}
		if len(fetched) == 0 {
			if err := sleep(ctx, s.job.Poll); err != nil {
				return nil // the measurement ends
			}
		}
		for _, one := range fetched {
			i, err := strconv.Atoi(string(one.Args[0]))
			if err != nil {
				return err
			}
			s.record.began(i, one.Attempt)
			s.record.returned(i, one.Attempt)
			if err := s.ack(ctx, one.ID, worker); err != nil {
				return err
			}
			s.record.ended(i)
		}
	}
	return nil
}

func (s *jobServer) close() error {
	err := s.server.Close()
	s.serving.Wait()
	s.door.Stop()
	return errors.Join(err, s.service.Close())
}

// verifyJobs counts rows, and runs the product's audit.
func verifyJobs(ctx context.Context, j job, db *sql.DB) error {
	var runs, succeeded, attempts, trail, leases int
	err := db.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE state = 'succeeded'), coalesce(sum(attempt_count), 0),
		(SELECT count(*) FROM recourse.receipts), (SELECT count(*) FROM recourse.leases) FROM recourse.runs`).Scan(&runs, &succeeded, &attempts, &trail, &leases)
	if err != nil {
		return err
	}
	if j.Workload == enqueueWorkload {
		return errors.Join(equal("jobs", runs, j.Tasks), equal("receipts", trail, j.Tasks))
	}
	return errors.Join(
		equal("jobs", runs, j.Tasks), equal("done jobs", succeeded, j.Tasks), equal("attempts", attempts, j.Tasks), equal("receipts", trail, 3*j.Tasks), equal("leases left", leases, 0),
		checkAudit(ctx, j),
	)
}
