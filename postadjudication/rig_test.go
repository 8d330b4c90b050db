package postadjudication

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// rig is a service on real servers, with an escrow service whose every answer the test scripts
// and whose ledger the test can check.
type rig struct {
	*Service
	t             testing.TB
	url           string
	redis         asynq.RedisConnOpt
	escrow        *scriptedEscrow
	db            *sql.DB
	stopWork      func()
	allowOverpaid bool // the escrow service pays more than it holds
}

func newRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	url := testkit.Migrated(t)
	_, redis := testkit.Redis(t)
	return joinRig(t, url, redis, newEscrow(), change...)
}

// joinRig starts one more process on the servers of another rig.
func joinRig(t testing.TB, url string, redis asynq.RedisConnOpt, e *scriptedEscrow, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, url: url, redis: redis, escrow: e, stopWork: func() {}}
	c := Config{DatabaseURL: url, Redis: redis, Executor: e, TimeLimit: 5 * time.Second, Grace: 5 * time.Second, Logger: testLogger(t),
		Breaker: BreakerRule{Disabled: true}, Lookups: casework.LookupRule{Off: true}} // scripts fail on purpose; tests of circuit breakers and of lookups turn them on
	for _, f := range change {
		f(&c)
	}
	var err error
	if r.Service, err = Open(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	if r.db, err = sql.Open("postgres", testkit.Owner(t, url)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.stopWork()
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := r.db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

func testLogger(t testing.TB) *zap.Logger {
	if !testing.Verbose() {
		return zap.NewNop()
	}
	l, err := zap.NewDevelopment()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// startWorkers starts the workers of this rig; they stop when the test ends, or when
// stopWork is called.
func (r *rig) startWorkers() *rig {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stopWork = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
	})
	return r
}

// until waits for a state of the database; the query returns one bool.
func (r *rig) until(what, query string, args ...any) {
	r.t.Helper()
	r.untilTrue(what, func() (ok bool) {
		if err := r.db.QueryRow(query, args...).Scan(&ok); err != nil {
			r.t.Fatal(err)
		}
		return ok
	})
}

// untilTrue waits for a state outside the database.
func (r *rig) untilTrue(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.NewTimer(60 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			r.t.Fatal("timed out waiting for: ", what)
		}
	}
}

func (r *rig) untilNoneLive() {
	r.t.Helper()
	r.until("no run is live", `SELECT NOT EXISTS (SELECT FROM recourse.runs WHERE live)`)
}

// Audit audits tenants, or all, through the reader of the service.
func (r *rig) Audit(ctx context.Context, tenants ...string) (*audit.Report, error) {
	return r.AuditWith(ctx, r.AuditQuery(tenants...))
}

func (r *rig) AuditWith(ctx context.Context, q audit.Query) (*audit.Report, error) {
	return audit.Run(ctx, r.AuditReader(), q)
}

func (r *rig) AuditCase(ctx context.Context, tenant string, id receipts.CaseID) (*audit.Report, error) {
	return audit.Case(ctx, r.AuditReader(), tenant, id, r.AuditQuery())
}

func (r *rig) CompareHeads(ctx context.Context, expected map[receipts.CaseID]receipts.Head, report *audit.Report) ([]audit.Break, error) {
	return audit.CompareHeads(ctx, r.AuditReader(), expected, report)
}

// mustAudit checks the invariants, and that the escrow service paid each operation key
// at most once and exactly what the journal says.
func (r *rig) mustAudit() *audit.Report {
	r.t.Helper()
	if err := r.DrainEvents(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	a, err := r.Audit(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range audit.Invariants {
		if v := a.Verdict(name); v != "ok" {
			r.t.Errorf("invariant %q: %s", name, v)
		}
	}
	if a.EarlyAttempts != 0 {
		r.t.Errorf("%d attempts before their time", a.EarlyAttempts)
	}
	r.checkLedger()
	return a
}

func (r *rig) count(query string, args ...any) (n int) {
	r.t.Helper()
	if err := r.db.QueryRow(query, args...).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) mustSubmit(a Adjudication) Submitted {
	r.t.Helper()
	s, err := r.Submit(context.Background(), a)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// mustNotify waits until the run's task is in Redis, which may be a moment after Submit
// has returned.
func (r *rig) mustNotify(s Submitted) Submitted {
	r.t.Helper()
	if err := s.Notify(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) caseOf(a Adjudication) casestatus.Case {
	r.t.Helper()
	c, err := r.Case(context.Background(), a.Tenant, a.TransactionReceiptID)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func euros(minor int64) settlement.Money { return settlement.Money{Minor: minor, Currency: "EUR"} }

// release returns an ordinary adjudication with an escrow of its own.
func release(n int) Adjudication {
	return Adjudication{Instruction: settlement.Instruction{
		Tenant: "acme", TransactionReceiptID: fmt.Sprintf("txr_%d", n), SubmissionReceiptID: fmt.Sprintf("sub_%d", n),
		AdjudicationID: fmt.Sprintf("adj_%d", n), EscrowReference: fmt.Sprintf("esc_%d", n), Outcome: settlement.Release,
		Generation: 1, Amount: euros(1000), Held: euros(1000),
	}}
}

func refund(n int) Adjudication {
	a := release(n)
	a.Outcome = settlement.Refund
	return a
}

// scriptedEscrow answers calls as the test scripts, and keeps its own ledger.
type scriptedEscrow struct {
	mu             sync.Mutex
	script         func(ctx context.Context, c escrow.Call) escrow.Answer // nil: pay
	lookup         func(c escrow.Call) escrow.Answer                      // nil: by the ledger
	keyLifetime    time.Duration
	lookupLifetime time.Duration                   // how long a lookup knows a key; keyLifetime when that is longer
	inFlight       time.Duration                   // how long an abandoned call may be executed
	payments       []payment                       // in order; append-only
	known          map[escrow.OperationKey]payment // what the service answers from
	calls          map[escrow.OperationKey]int
}

type payment struct {
	call  escrow.Call
	minor int64
	at    time.Time
}

func newEscrow() *scriptedEscrow {
	return &scriptedEscrow{keyLifetime: escrow.Forever, known: map[escrow.OperationKey]payment{}, calls: map[escrow.OperationKey]int{}}
}

func (e *scriptedEscrow) KeyLifetime() time.Duration    { return e.keyLifetime }
func (e *scriptedEscrow) LookupLifetime() time.Duration { return e.lookupLifetime }
func (e *scriptedEscrow) InFlight() time.Duration       { return e.inFlight }

func (e *scriptedEscrow) Execute(ctx context.Context, c escrow.Call) escrow.Answer {
	e.mu.Lock()
	e.calls[c.OperationKey]++
	script := e.script
	e.mu.Unlock()
	if script == nil {
		return e.pay(c, c.Amount.Minor)
	}
	return script(ctx, c)
}

// pay moves money once for a key while it knows the key, and gives the same answer every time.
// Like a real service it forgets a key whose lifetime has expired, and would pay
// again.
func (e *scriptedEscrow) pay(c escrow.Call, minor int64) escrow.Answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.known[c.OperationKey]
	if known.minor == 0 || e.keyLifetime != escrow.Forever && time.Since(known.at) > e.keyLifetime {
		known = payment{c, minor, time.Now()}
		e.known[c.OperationKey] = known
		e.payments = append(e.payments, known)
	}
	return escrow.Answer{Class: escrow.Executed, Moved: known.minor, Reference: "pay_" + c.OperationKey.String()[:8]}
}

func (e *scriptedEscrow) Lookup(_ context.Context, c escrow.Call) escrow.Answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lookup != nil {
		return e.lookup(c)
	}
	if paid := e.known[c.OperationKey]; paid.minor > 0 {
		return escrow.Answer{Class: escrow.Executed, Moved: paid.minor, Reference: "looked up"}
	}
	return escrow.Answer{Class: escrow.NotExecuted}
}

func (e *scriptedEscrow) totalCalls() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.calls {
		n += c
	}
	return n
}

// checkLedger compares the escrow service's append-only ledger with the journal: no key paid
// twice, no transaction paid both ways unless by generations, and for each transaction exactly
// what the journal says was moved.
func (r *rig) checkLedger() {
	r.t.Helper()
	e := r.escrow
	e.mu.Lock()
	defer e.mu.Unlock()
	keys, moved := map[escrow.OperationKey]int{}, map[string]map[settlement.Outcome]int64{}
	for _, p := range e.payments {
		if keys[p.call.OperationKey]++; keys[p.call.OperationKey] > 1 {
			r.t.Errorf("operation key %s was paid again", p.call.OperationKey)
		}
		s, err := r.Status(context.Background(), p.call.Tenant, p.call.Run)
		if err != nil {
			r.t.Fatal(err)
		}
		transaction := strings.TrimSuffix(s.RetryKey, ":"+string(p.call.Outcome))
		if moved[transaction] == nil {
			moved[transaction] = map[settlement.Outcome]int64{}
		}
		moved[transaction][p.call.Outcome] += p.minor
	}
	rows, err := r.db.Query(`SELECT subject, released, refunded, held - released - refunded FROM recourse.cases c JOIN recourse.escrows e ON e.id = c.escrow_id WHERE unknown_open = 0`)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var transaction string
		var released, refunded, left int64
		if err := rows.Scan(&transaction, &released, &refunded, &left); err != nil {
			r.t.Fatal(err)
		}
		if m := moved[transaction]; m["release"] != released || m["refund"] != refunded {
			r.t.Errorf("%s: the escrow service released %d and refunded %d, the journal says %d and %d", transaction, m["release"], m["refund"], released, refunded)
		}
		if left < 0 && !r.allowOverpaid {
			r.t.Errorf("%s: %d more was paid than the escrow holds", transaction, -left)
		}
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
}

func busy429() escrow.Answer {
	return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "http.rate_limited", Code: "429", Message: "slow down"}
}
func refused() escrow.Answer {
	return escrow.Answer{Class: escrow.NotExecuted, Type: "http.refused", Code: "422", Message: "account closed"}
}
func noAnswer() escrow.Answer {
	return escrow.Answer{Class: escrow.Unknown, Retry: true, Type: "http.no_answer", Message: "connection reset"}
}

// asOnePerson returns a context without identities, in which one person may do what
// takes two elsewhere.
func asOnePerson(ctx context.Context) context.Context {
	return casework.WithCaller(ctx, casework.Caller{NoKeys: true})
}

// Most tests are about the money, not about who states it: there one person suffices.

func (r *rig) Reconcile(ctx context.Context, tenant string, id background.RunID, f casework.Finding) (casestatus.Case, error) {
	return r.Service.As(tenant, "user:ada").DeadLetters.Reconcile(asOnePerson(ctx), id, f)
}

func (r *rig) ReconcileCase(ctx context.Context, tenant, transaction string, f casework.Finding) (casestatus.Case, error) {
	return r.Service.As(tenant, "user:ada").DeadLetters.ReconcileCase(asOnePerson(ctx), transaction, f)
}

func (r *rig) Purge(ctx context.Context, tenant string, q PurgeRequest) (Purged, error) {
	return r.Service.As(tenant, "user:ada").DeadLetters.Purge(asOnePerson(ctx), q)
}

func (r *rig) Clear(ctx context.Context, tenant string, q ClearRequest) (Purged, error) {
	return r.Service.As(tenant, "user:ada").DeadLetters.Clear(asOnePerson(ctx), q)
}

// acting is for whom and in whose name a test acts.
type acting struct{ tenant, actor string }
