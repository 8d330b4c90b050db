package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sys/unix"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/settlement"
)

func TestMain(m *testing.M) {
	if code, is := worker.Main(); is {
		os.Exit(code)
	}
	if code, is := remote.Main(); is {
		os.Exit(code)
	}
	flag.Parse()
	// These tests mostly wait until lost processes are noticed, not for a processor.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(testkit.Main(m))
}

const (
	waitLimit = 25 * time.Second // less than asynq takes to find a lost worker by itself
	lostAfter = 3 * time.Second
	endLimit  = 2 * time.Minute // of a worker that ends in order, on a busy machine

	// timePerLetter is how much longer every wait may take for each letter of a test of many.
	timePerLetter = 200 * time.Millisecond

	// askedWithin is enough to look up hundreds of letters twice, five a second: on a busy
	// machine as many calls exceed their time limit.
	askedWithin = 3 * time.Minute

	callLimit       = 400 * time.Millisecond
	lateAnswerDelay = 700 * time.Millisecond // when a late call is answered: past the time limit
)

// fixture is real servers, an escrow service whose ledger outlives every worker, and the
// submissions.
type fixture struct {
	archiveFolder string // of archived letters, in tests that retain them
	t             *testing.T
	url           string
	redis         string
	escrow        *fakeescrow.Service
	service       *postadjudication.Service // reads; executes nothing
	db            *sql.DB
	log           sharedLog
	limit         time.Duration // of every wait

	receiver *receiver // of the tenant's webhook, in tests of webhooks
	workers  fleet     // those that were started; it starts none

	submitted  []postadjudication.Adjudication
	accepted   *accepted
	tampering  *tamperLog
	maxUnknown int // cases whose outcome may be unknown at the end: the one whose worker was killed during a call
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	url := testkit.Migrated(t)
	server, _ := testkit.Redis(t)
	return newFixtureOn(t, url, testkit.Owner(t, url), server.URL())
}

// newFixtureOn returns a fixture on servers with the schema.
func newFixtureOn(t *testing.T, url, owner, redisURL string) *fixture {
	t.Helper()
	s := &fixture{t: t, url: url, redis: redisURL, accepted: newAccepted(), tampering: newTamperLog(), limit: waitLimit, maxUnknown: 1}
	redis, err := asynq.ParseRedisURI(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	if s.escrow, err = fakeescrow.Start(fakeescrow.Config{Late: lateAnswerDelay}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.escrow.Close)
	if s.db, err = sql.Open("postgres", owner); err != nil {
		t.Fatal(err)
	}
	s.service, err = postadjudication.Open(context.Background(), postadjudication.Config{
		DatabaseURL: s.url, Redis: redis, Families: []postadjudication.PlainFamily{worker.PlainFamily()}, Jobs: true, PaymentQueues: []string{remote.PayQueue},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.service.Close(), s.db.Close()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the workers' log:\n%s", s.log.String())
		}
	})
	return s
}

// sharedLog collects the logs of several processes.
type sharedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// worker starts a process that ends at a point, or at none when it is empty.
func (s *fixture) worker(point string, change ...func(*worker.Settings)) *workerProcess {
	s.t.Helper()
	set := worker.Settings{
		Name: "worker", DatabaseURL: s.url, RedisURL: s.redis, EscrowURL: s.escrow.URL(), Failpoint: point,
		LostAfter: lostAfter, TimeLimit: callLimit, Grace: callLimit, BaseDelay: 25 * time.Millisecond, Slots: 8, KeyLifetime: time.Hour, InFlight: time.Second, Asynchronous: 30 * time.Minute,
	}
	set.Webhooks = s.receiver != nil
	for _, f := range change {
		f(&set)
	}
	h, err := launch(set, &s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := h.kill(); err != nil {
			s.t.Error(err)
		}
	})
	s.workers.started = append(s.workers.started, h)
	select {
	case <-h.ready:
	case <-h.ended:
	case <-time.After(s.limit):
		s.t.Fatal("the worker does not open")
	}
	return h
}

// submit submits; when the worker ends before its reply the outcome is unknown.
func (s *fixture) submit(h *workerProcess, as ...postadjudication.Adjudication) {
	s.t.Helper()
	s.submitAs(h, worker.Submit, as...)
}

func (s *fixture) submitAs(h *workerProcess, do string, as ...postadjudication.Adjudication) {
	s.t.Helper()
	for _, a := range as {
		s.submitted = append(s.submitted, a)
		s.accepted.noteSubmitted(a)
		r, err := h.ask(s.ctx(), worker.Command{Do: do, Adjudication: a})
		if errors.Is(err, errWorkerEnded) {
			continue
		}
		if err != nil || r.Error != "" {
			s.t.Fatalf("submit %s: %v %s", a.TransactionReceiptID, err, r.Error)
		}
		s.accepted.noteReply(a, r)
	}
}

// notifyUnserved submits while no worker runs: the notification waits in Redis.
func (s *fixture) notifyUnserved(a postadjudication.Adjudication) {
	s.t.Helper()
	s.submitted = append(s.submitted, a)
	s.accepted.noteSubmitted(a)
	r, err := s.service.Submit(s.ctx(), a)
	if err != nil || r.Reply != postadjudication.Created {
		s.t.Fatalf("submit %s: %s, %v", a.TransactionReceiptID, r.Reply, err)
	}
	s.accepted.noteReply(a, worker.Reply{Reply: r.Reply, Run: r.Run.String()})
	if err := r.Notify(s.ctx()); err != nil {
		s.t.Fatal(err)
	}
}

// submitAsync submits without waiting; the returned function waits.
func (s *fixture) submitAsync(h *workerProcess, a postadjudication.Adjudication) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.submit(h, a)
	}()
	return func() { <-done }
}

// resubmit submits everything again: what was unknown is decided, and nothing is
// accepted twice.
func (s *fixture) resubmit(h *workerProcess) {
	s.t.Helper()
	for _, a := range s.submitted {
		r, err := h.ask(s.ctx(), worker.Command{Do: worker.Submit, Adjudication: a})
		if err != nil || r.Error != "" {
			s.t.Fatalf("submit %s again: %v %s", a.TransactionReceiptID, err, r.Error)
		}
		s.accepted.noteReply(a, r)
	}
}

func (s *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), s.limit)
	s.t.Cleanup(cancel)
	return ctx
}

// awaitKilled waits until the worker was killed at the point, and checks that it was SIGKILL.
func (s *fixture) awaitKilled(h *workerProcess) {
	s.t.Helper()
	select {
	case <-h.process.Done():
	case <-time.After(s.limit):
		s.t.Fatal("the point was not reached")
	}
	if code := h.process.Code(); code != 128+int(syscall.SIGKILL) {
		s.t.Fatalf("the worker ended with code %d, not by SIGKILL", code)
	}
}

func (s *fixture) until(what, query string, args ...any) {
	s.t.Helper()
	s.within(s.limit, what, query, args...)
}

func (s *fixture) within(limit time.Duration, what, query string, args ...any) {
	s.t.Helper()
	poll.Within(s.t, limit, what, func() (ok bool) {
		if err := s.db.QueryRow(query, args...).Scan(&ok); err != nil {
			s.t.Fatal(err)
		}
		return ok
	})
}

func (s *fixture) untilRun(state string) {
	s.t.Helper()
	s.until("a run is "+state, `SELECT EXISTS (SELECT FROM recourse.runs WHERE state = $1)`, state)
}

func (s *fixture) awaitNoneLive() {
	s.t.Helper()
	s.until("no run is live", `SELECT NOT EXISTS (SELECT FROM recourse.runs WHERE live)`)
	s.within(askedWithin, "what can be asked about is known", `SELECT count(*) <= $1 FROM recourse.cases WHERE unknown_open > 0`, s.maxUnknown)
}

// checkConsistent checks everything that must be true after any fault.
func (s *fixture) checkConsistent() {
	s.t.Helper()
	v, err := verify(s.ctx(), s.verifyInput())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, broken := range v.Broken {
		s.t.Error(broken)
	}
}

func (s *fixture) verifyInput() verifyInput {
	return verifyInput{service: s.service, escrows: ledgers{s.escrow}, accepted: s.accepted, statements: s.workers.statements(), tampering: s.tampering, maxUnknown: s.maxUnknown}
}

// adjudication returns one with its own escrow, which holds three times as much. Its calls simulate the words.
func adjudication(n int, words, executor string) postadjudication.Adjudication {
	money, held := settlement.Money{Minor: 1000, Currency: "EUR"}, settlement.Money{Minor: 3000, Currency: "EUR"}
	return postadjudication.Adjudication{
		Instruction: settlement.Instruction{
			Tenant: "chaos", TransactionReceiptID: fmt.Sprintf("txr_%d", n), SubmissionReceiptID: fmt.Sprintf("sub_%d", n),
			AdjudicationID: fmt.Sprintf("adj_%d", n), EscrowReference: fmt.Sprintf("esc_%d", n), Outcome: settlement.Release,
			Generation: 1, Amount: money, Held: held,
		},
		Payload: fmt.Appendf(nil, `{"simulate":%q,"executor":%q}`, words, executor),
	}
}

// onlyRun returns the only run that matches.
func (s *fixture) onlyRun(is string) (run string) {
	s.t.Helper()
	if err := s.db.QueryRow(`SELECT id FROM recourse.runs WHERE ` + is).Scan(&run); err != nil {
		s.t.Fatal(err)
	}
	return run
}

// exec writes into the database, bypassing Recourse.
func (s *fixture) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(statement, args...); err != nil {
		s.t.Fatal(err)
	}
}

// command sends a worker a command, during which it may end.
func (s *fixture) command(h *workerProcess, do, run string) {
	s.t.Helper()
	s.commandFor(h, do, "chaos", run)
}

func (s *fixture) commandFor(h *workerProcess, do, tenant, run string) {
	s.t.Helper()
	r, err := h.ask(s.ctx(), worker.Command{Do: do, Tenant: tenant, Run: run})
	if !errors.Is(err, errWorkerEnded) && (err != nil || r.Error != "") {
		s.t.Fatalf("%s: %v %s", do, err, r.Error)
	}
}

// release releases circuit breakers that were opened by hand, before or after the worker's
// end.
func (s *fixture) release(h *workerProcess) {
	s.t.Helper()
	breakers, err := s.service.As("chaos", "").Breakers.List(s.ctx())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, b := range breakers {
		if b.ByHand && b.State == circuit.Open {
			s.commandFor(h, worker.ReleaseBreaker, b.Tenant, "")
		}
	}
}

// archive archives the one task, as an operator may in asynqmon.
func (s *fixture) archive() {
	s.t.Helper()
	redis, err := asynq.ParseRedisURI(s.redis)
	if err != nil {
		s.t.Fatal(err)
	}
	i := asynq.NewInspector(redis)
	defer i.Close()
	queues, err := i.Queues()
	if err != nil {
		s.t.Fatal(err)
	}
	archived := 0
	for _, q := range queues {
		n, err := tamperQueue(i, q, s.tampering, archivePending)
		if err != nil {
			s.t.Fatal(err)
		}
		archived += n
	}
	if archived != 1 {
		s.t.Fatalf("%d tasks archived", archived)
	}
}

// stopWorker asks a worker to end gracefully.
func (s *fixture) stopWorker(h *workerProcess) {
	s.t.Helper()
	if err := h.stop(); err != nil {
		s.t.Fatal(err)
	}
}

// terminate ends a worker gracefully, and fails the test if it does not.
func (s *fixture) terminate(h *workerProcess) {
	s.t.Helper()
	s.stopWorker(h)
	select {
	case <-h.process.Done():
	case <-time.After(endLimit):
		if err := h.process.Signal(syscall.SIGQUIT); err != nil { // its log says where each goroutine waits
			s.t.Error(err)
		}
		select {
		case <-h.process.Done():
		case <-time.After(s.limit):
		}
		s.t.Fatal("the worker does not end")
	}
	if code := h.process.Code(); code != 0 {
		s.t.Errorf("the worker ended with code %d", code)
	}
}

// frozen waits until the process is stopped by SIGSTOP.
func (s *fixture) frozen(h *workerProcess) {
	s.t.Helper()
	stopped := make(chan error, 1)
	go func() { // WNOWAIT: the wait for the end of the process must still see every change
		stopped <- unix.Waitid(unix.P_PID, h.process.PID(), nil, unix.WSTOPPED|unix.WNOWAIT, nil)
	}()
	select {
	case err := <-stopped:
		if err != nil {
			s.t.Fatal(err)
		}
	case <-time.After(s.limit):
		s.t.Fatal("the worker does not freeze")
	}
}
