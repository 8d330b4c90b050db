package postadjudication

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// otherProcess returns another process on the same servers, without cached runs.
func (r *rig) otherProcess(change ...func(*Config)) *rig {
	r.t.Helper()
	return joinRig(r.t, r.url, r.redis, r.escrow, change...)
}

// recordCalls returns a function that returns the calls that the escrow service got so far.
func (e *scriptedEscrow) recordCalls(script func(escrow.Call) escrow.Answer) func() []escrow.Call {
	var all []escrow.Call
	e.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		e.mu.Lock()
		c.Request = bytes.Clone(c.Request)
		all = append(all, c)
		e.mu.Unlock()
		if script == nil {
			return e.pay(c, c.Amount.Minor)
		}
		return script(c)
	}
	return func() []escrow.Call {
		e.mu.Lock()
		defer e.mu.Unlock()
		return all
	}
}

// untilRequestAlteredLetter waits until the run is a dead letter because its request was altered, and
// checks its receipt.
func (r *rig) untilRequestAlteredLetter(s Submitted, class escrow.Class) {
	r.t.Helper()
	r.until("the run is condemned", `SELECT state = 'dead_lettered' FROM recourse.runs WHERE id = $1`, s.Run.String())
	st := r.status(s.Run)
	if st.ReasonCode != background.ReasonRequestAltered || st.Class != class || st.Letter != background.LetterOpen {
		r.t.Errorf("run %s: reason %q, class %q, letter %q", s.Run, st.ReasonCode, st.Class, st.Letter)
	}
	p := r.payloadOf(st, receipts.DeadLettered)
	if p.ReasonCode != background.ReasonRequestAltered || p.Error.Type != background.ReasonRequestAltered || p.Error.Message == "" {
		r.t.Errorf("its receipt: %+v", p)
	}
}

// alterRequestSQL returns the SQL that changes the text of a case's request.
func alterRequestSQL(from, to string) string {
	return fmt.Sprintf(`UPDATE recourse.operations SET request = convert_to(replace(convert_from(request,'UTF8'), '%s', '%s'), 'UTF8') WHERE case_id = $case`, from, to)
}

// tamperCase executes SQL on $case.
func (r *rig) tamperCase(s Submitted, sql string) {
	r.t.Helper()
	testkit.Tamper(r.t, r.db, strings.ReplaceAll(sql, "$case", "'"+s.Case.String()+"'"))
}

func withPayee(n int) Adjudication {
	a := release(n)
	a.Payload = json.RawMessage(`{"payee":"honest"}`)
	return a
}

// A request that was altered in the database is never sent, by whatever process: its run waits for
// a person, and the others continue.
func TestAnAlteredRequestIsNeverSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sent := r.escrow.recordCalls(nil)
	whole := r.mustSubmit(withPayee(0))
	altered, n := map[background.RunID]string{}, 0
	for what, sql := range map[string]string{
		"the payee":       alterRequestSQL("honest", "mallory"),
		"the amount":      alterRequestSQL(`"minor":1000`, `"minor":999`),
		"the outcome":     alterRequestSQL("release", "refund"),
		"no JSON":         `UPDATE recourse.operations SET request = 'x' WHERE case_id = $case`,
		"the key":         `UPDATE recourse.operations SET key = sha256('x') WHERE case_id = $case; UPDATE recourse.runs SET operation_key = sha256('x') WHERE case_id = $case`,
		"no key":          `UPDATE recourse.runs SET operation_key = NULL, payload = '{}' WHERE case_id = $case`,
		"the service":     `UPDATE recourse.runs SET target = 'mallory' WHERE case_id = $case`,
		"the tenant":      `UPDATE recourse.runs SET tenant = 'mallory' WHERE case_id = $case`,
		"another request": `UPDATE recourse.runs SET operation_key = (SELECT operation_key FROM recourse.runs WHERE id = '` + whole.Run.String() + `') WHERE case_id = $case`,
	} {
		n++
		s := r.mustSubmit(withPayee(n))
		altered[s.Run] = what
		r.tamperCase(s, sql)
	}
	r.otherProcess().startWorkers()
	r.untilNoneLive()
	for run, what := range altered {
		if k := r.count(`SELECT count(*) FROM recourse.runs WHERE id = $1 AND letter = 'open' AND reason = 'request_altered' AND error_type = 'request_altered' AND class = '' AND attempt_count = 0`, run.String()); k != 1 {
			t.Errorf("%s: the run is not a letter with reason request_altered", what)
		}
	}
	for _, c := range sent() {
		if c.Run != whole.Run || !strings.Contains(string(c.Request), "honest") {
			t.Errorf("%s: sent %s under %s to %s", altered[c.Run], c.Request, c.OperationKey, c.Target)
		}
	}
	if len(sent()) != 1 || r.status(whole.Run).State != background.Succeeded {
		t.Errorf("%d calls", len(sent()))
	}
}

// An altered run is not looked up and can't be forked until its request is restored; then it
// can.
func TestAnAlteredRunWaitsForItsRequestToBeRestored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	asked := 0
	r.escrow.keyLifetime = time.Hour
	r.escrow.lookup = func(escrow.Call) escrow.Answer { asked++; return escrow.Answer{Class: escrow.Unknown, Retry: true} }
	sent := r.escrow.recordCalls(func(escrow.Call) escrow.Answer { return busy429() })
	a := release(1)
	a.Payload = json.RawMessage(`{"payee":"honest"}`)
	s := r.mustSubmit(a)
	change := func(from, to string) {
		testkit.Tamper(t, r.db, fmt.Sprintf(`UPDATE recourse.operations SET request = convert_to(replace(convert_from(request,'UTF8'), '%s', '%s'), 'UTF8')`, from, to))
	}
	change("honest", "mallory")
	r.startWorkers()
	other := r.otherProcess()
	// The process that accepted it has the submitted request cached.
	r.until("the run has ended", `SELECT state = 'dead_lettered' FROM recourse.runs WHERE id = $1`, s.Run.String())
	for _, c := range sent() {
		if !strings.Contains(string(c.Request), "honest") {
			t.Errorf("sent %s", c.Request)
		}
	}
	r.stopWork()
	calls := len(sent())

	var refused *refusal.RefusedError
	if _, err := other.As("acme", "user:ada").DeadLetters.Fork(ctx, s.Run, deadletter.Fork{Reason: "mended"}); !errors.As(err, &refused) || refused.Gate != refusal.GateRequestAltered {
		t.Errorf("fork: %v", err)
	}
	if _, err := other.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateRequestAltered || asked != 0 {
		t.Errorf("lookup: %v, asked %d times", err, asked)
	}
	if err := other.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	change("mallory", "honest")
	r.escrow.script = nil
	forked, err := other.As("acme", "user:ada").DeadLetters.Fork(ctx, s.Run, deadletter.Fork{Reason: "restored"})
	if err != nil {
		t.Fatalf("%+v, %v", forked, err)
	}
	if len(sent()) != calls {
		t.Errorf("%d calls, %d before", len(sent()), calls)
	}
	other.startWorkers()
	other.untilNoneLive()
	other.mustAudit()
}

// A run's unknown outcome stays unknown when its request was altered: the escrow service is not
// asked about it.
func TestAnAlteredRunOfUnknownOutcomeIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.keyLifetime = 0 // each unknown outcome is looked up before anything is sent again
	asked := 0
	r.escrow.lookup = func(escrow.Call) escrow.Answer { asked++; return escrow.Answer{Class: escrow.NotExecuted} }
	s := r.mustSubmit(release(1))
	testkit.Tamper(t, r.db,
		`UPDATE recourse.operations SET request = convert_to(replace(convert_from(request,'UTF8'), '1000', '10'), 'UTF8')`,
		`UPDATE recourse.runs SET class = 'unknown'`, `UPDATE recourse.cases SET unknown_open = 1, first_sent_at = now() - interval '1 day'`)
	r.otherProcess().startWorkers()
	r.untilRequestAlteredLetter(s, escrow.Unknown)
	if asked != 0 || r.escrow.totalCalls() != 0 {
		t.Errorf("asked %d times, called %d times", asked, r.escrow.totalCalls())
	}
}

// untilAllDead waits until all runs are dead, and stops the workers.
func (r *rig) untilAllDead(all ...Submitted) {
	r.t.Helper()
	script := r.escrow.script
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return refused() }
	w := r.otherProcess().startWorkers()
	for _, s := range all {
		r.until("the run is a letter", `SELECT letter = 'open' FROM recourse.runs WHERE id = $1`, s.Run.String())
	}
	w.stopWork()
	r.escrow.script = script
}

func (r *rig) mustFork(letter Submitted) Submitted {
	r.t.Helper()
	s, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, forkRequest)
	if err != nil {
		r.t.Fatal(err)
	}
	return asSubmitted(s)
}

// Each later run of a case is bound by its own receipt: a fork under the same key and
// under a new one, a fork of a fork, and a higher generation.
func TestLaterRunsAreBoundByTheirOwnReceipts(t *testing.T) {
	t.Parallel()
	for _, replays := range []bool{false, true} {
		t.Run(fmt.Sprintf("a fork has a new key: %t", replays), func(t *testing.T) {
			t.Parallel()
			e := newEscrow()
			url := testkit.Migrated(t)
			_, redis := testkit.Redis(t)
			executor := func(c *Config) {
				if replays {
					c.Executor = replayingEscrow{e}
				}
			}
			r := joinRig(t, url, redis, e, executor)
			var first []Submitted
			for n := range 6 {
				first = append(first, r.mustSubmit(withPayee(n)))
			}
			r.untilAllDead(first...)
			twice := []Submitted{r.mustFork(first[0]), r.mustFork(first[1])}
			r.untilAllDead(twice...)
			generation := func(n int) Submitted {
				a := refund(n)
				a.Generation = 2
				return r.mustSubmit(a)
			}
			good := []Submitted{r.mustFork(twice[0]), r.mustFork(first[2]), generation(4)}
			bad := []Submitted{r.mustFork(twice[1]), r.mustFork(first[3]), generation(5)}
			for _, s := range bad {
				r.tamperCase(s, alterRequestSQL(`"generation":`, `"generation": `))
			}
			calls := e.totalCalls()
			r.otherProcess(executor).startWorkers()
			r.untilNoneLive()
			for _, s := range bad {
				r.untilRequestAlteredLetter(s, "")
			}
			for _, s := range good {
				if st := r.status(s.Run); st.State != background.Succeeded {
					t.Errorf("%+v", st)
				}
			}
			if n := e.totalCalls() - calls; n != len(good) {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// withoutRequestDigests takes the digest of the request out of the receipts of a case, whose chain holds.
func (r *rig) withoutRequestDigests(caseID receipts.CaseID) {
	r.t.Helper()
	trail, err := r.Receipts(context.Background(), "acme", caseID, 0, 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	head, changes := receipts.Genesis(caseID), []string(nil)
	for _, e := range trail {
		entry, err := receipts.Parse(e.Body)
		if err != nil {
			r.t.Fatal(err)
		}
		entry.Payload.RequestDigest = ""
		body, err := receipts.AppendBody(nil, caseID, entry.Tenant, entry.Draft)
		if err != nil {
			r.t.Fatal(err)
		}
		head = head.Next(body)
		changes = append(changes, fmt.Sprintf(`UPDATE recourse.receipts SET body = convert_from('\x%x', 'UTF8'), link = '\x%x' WHERE case_id = '%s' AND seq = %d`, body, head.Link, caseID, head.Seq))
	}
	testkit.Tamper(r.t, r.db, append(changes, fmt.Sprintf(`UPDATE recourse.cases SET last_link = '\x%x' WHERE id = '%s'`, head.Link, caseID))...)
}

// A request that no receipt states the digest of is not sent.
func TestARequestWithoutADigestIsNeverSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dead := r.mustSubmit(withPayee(1))
	r.untilAllDead(dead)
	calls := r.escrow.totalCalls()
	fresh, fork := r.mustSubmit(withPayee(2)), r.mustFork(dead)
	for _, s := range []Submitted{fresh, fork} {
		r.withoutRequestDigests(s.Case)
	}
	r.otherProcess().startWorkers()
	for _, s := range []Submitted{fresh, fork} {
		r.untilRequestAlteredLetter(s, "")
	}
	if n := r.escrow.totalCalls() - calls; n != 0 {
		t.Errorf("%d calls", n)
	}
}

// A plain task is run with the submitted payload, or not at all.
func TestAnAlteredTaskIsNotRun(t *testing.T) {
	t.Parallel()
	var given []string
	chores := PlainFamily{Name: "chores", Handle: func(_ context.Context, a background.Attempt) background.Result {
		given = append(given, string(a.Run.Payload))
		return background.Result{Class: escrow.Executed}
	}}
	withChores := func(c *Config) { c.Families = []PlainFamily{chores} }
	r := newRig(t, withChores)
	s, err := r.SubmitTask(context.Background(), Task{Tenant: "acme", Family: "chores", Payload: json.RawMessage(`{"mail":"ada"}`)})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Tamper(t, r.db, `UPDATE recourse.runs SET payload = '{"mail":"eve"}'`)
	r.otherProcess(withChores).startWorkers()
	r.untilRequestAlteredLetter(s, "")
	if len(given) != 0 {
		t.Errorf("%q", given)
	}
}

// A late payment is recorded by the submitted terms, whatever the row says now.
func TestALatePaymentIsOfTheOutcomeThatWasSubmitted(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.TimeLimit = 100 * time.Millisecond })
	hang := make(chan struct{})
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer { <-hang; return r.escrow.pay(c, c.Amount.Minor) }
	r.escrow.keyLifetime = 0
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return escrow.Answer{Class: escrow.Unknown, Retry: true} }
	s := r.startWorkers().mustSubmit(release(1))
	r.until("the run is a letter", `SELECT letter = 'open' FROM recourse.runs WHERE id = $1`, s.Run.String())
	testkit.Tamper(t, r.db, `UPDATE recourse.operations SET request = convert_to(replace(convert_from(request,'UTF8'), 'release', 'refund'), 'UTF8')`)
	close(hang)
	r.until("the letter is closed", `SELECT letter = 'reconciled' FROM recourse.runs WHERE id = $1`, s.Run.String())
	if c := r.caseOf(release(1)); c.Progression != settlement.Settled || c.Released != 1000 || c.Refunded != 0 {
		t.Errorf("%+v", c)
	}
}
