package worker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/ojs"
)

// JobTenant is the tenant of the jobs that come in over HTTP.
const JobTenant = "chaos-jobs"

// shutdownGrace is how long a request may take that the end of the worker finds in work.
const shutdownGrace = 5 * time.Second

// serveJobs serves /ojs on a free port of loopback, without keys. It returns the address.
func (p *process) serveJobs(log *zap.Logger) (address string, stop func() error, err error) {
	shared, err := door.New(door.Config{Service: p.service, Keyless: &door.Keyless{Tenant: JobTenant}, Log: log})
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		shared.Stop()
		return "", nil, err
	}
	server := &http.Server{
		Handler:           ojs.New(ojs.Config{Service: p.service, Door: shared, Log: log, Version: "chaos"}),
		ReadHeaderTimeout: shutdownGrace, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return listener.Addr().String(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		shared.Stop()
		if server.Shutdown(ctx) != nil { // a request takes longer: its outcome is unknown to its caller
			_ = server.Close()
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil
}
