package rig

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/receipts"
)

// Rig is a service on real servers, with an escrow service whose every answer the test scripts
// and whose ledger the test can check.
type Rig struct {
	*postadjudication.Service
	Waits
	T             testing.TB
	DatabaseURL   string // as the role that processes connect as
	Redis         asynq.RedisConnOpt
	Escrow        *Escrow
	DB            *sql.DB // as the owner, for what the service does not tell
	AllowOverpaid bool    // the escrow service pays more than it holds

	stop func()
}

// New opens a service on a database and a Redis of its own. change changes its configuration.
func New(t testing.TB, change ...func(*postadjudication.Config)) *Rig {
	t.Helper()
	url := testkit.Migrated(t)
	_, redis := testkit.Redis(t)
	return Join(t, url, redis, NewEscrow(), change...)
}

// Join starts one more process on the servers of another rig.
func Join(t testing.TB, url string, redis asynq.RedisConnOpt, e *Escrow, change ...func(*postadjudication.Config)) *Rig {
	t.Helper()
	r := &Rig{T: t, DatabaseURL: url, Redis: redis, Escrow: e, stop: func() {}}
	c := postadjudication.Config{DatabaseURL: url, Redis: redis, Executor: e, TimeLimit: 5 * time.Second, Grace: 5 * time.Second, Logger: Logger(t),
		Breaker: postadjudication.BreakerRule{Disabled: true}, Lookups: postadjudication.LookupRule{Off: true}} // scripts fail on purpose; tests of circuit breakers and of lookups turn them on
	for _, f := range change {
		f(&c)
	}
	var err error
	if r.Service, err = postadjudication.Open(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	if r.DB, err = sql.Open("postgres", testkit.Owner(t, url)); err != nil {
		t.Fatal(err)
	}
	r.Waits = Waits{StoredWaits{Stored{t, r.DB}}, r.Service}
	t.Cleanup(func() {
		r.StopWorkers()
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := r.DB.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// OtherProcess returns another process on the same servers, without cached runs.
func (r *Rig) OtherProcess(change ...func(*postadjudication.Config)) *Rig {
	r.T.Helper()
	return Join(r.T, r.DatabaseURL, r.Redis, r.Escrow, change...)
}

// Logger returns the logger of a rig: none, or one for people with go test -v.
func Logger(t testing.TB) *zap.Logger {
	if !testing.Verbose() {
		return zap.NewNop()
	}
	l, err := zap.NewDevelopment()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// StartWorkers starts the workers of this process. They stop when the test ends, or by
// StopWorkers.
func (r *Rig) StartWorkers() *Rig {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.T.Errorf("run: %v", err)
		}
	})
	return r
}

// StopWorkers stops the workers, and waits for their end.
func (r *Rig) StopWorkers() { r.stop() }

// MustSubmit submits an adjudication.
func (r *Rig) MustSubmit(a postadjudication.Adjudication) postadjudication.Submitted {
	r.T.Helper()
	s, err := r.Submit(context.Background(), a)
	if err != nil {
		r.T.Fatal(err)
	}
	return s
}

// MustNotify waits until the run's task is in Redis, which may be a moment after Submit
// has returned.
func (r *Rig) MustNotify(s postadjudication.Submitted) postadjudication.Submitted {
	r.T.Helper()
	if err := s.Notify(context.Background()); err != nil {
		r.T.Fatal(err)
	}
	return s
}

// CaseOf returns the case of an adjudication.
func (r *Rig) CaseOf(a postadjudication.Adjudication) casestatus.Case {
	r.T.Helper()
	c, err := r.Case(context.Background(), a.Tenant, a.TransactionReceiptID)
	if err != nil {
		r.T.Fatal(err)
	}
	return c
}

// StatusOf returns a run of the tenant acme.
func (r *Rig) StatusOf(id background.RunID) casestatus.Status {
	r.T.Helper()
	st, err := r.Status(context.Background(), "acme", id)
	if err != nil {
		r.T.Fatal(err)
	}
	return st
}

// Payloads returns the payloads of a case's receipts of a subtype.
func (r *Rig) Payloads(of postadjudication.Submitted, subtype receipts.Subtype) (out []receipts.Payload) {
	r.T.Helper()
	trail, err := r.Receipts(context.Background(), "acme", of.Case, 0, 1000)
	if err != nil {
		r.T.Fatal(err)
	}
	for _, rc := range trail {
		if rc.Subtype != subtype {
			continue
		}
		p, err := rc.Payload()
		if err != nil {
			r.T.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}
