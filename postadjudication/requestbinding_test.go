package postadjudication_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// untilRequestAlteredLetter waits until the run is a dead letter because its request was altered, and
// checks its receipt.
func untilRequestAlteredLetter(r *rig.Rig, s postadjudication.Submitted, class escrow.Class) {
	r.T.Helper()
	r.WaitState(s.Run, background.DeadLettered)
	st := r.StatusOf(s.Run)
	if st.ReasonCode != background.ReasonRequestAltered || st.Class != class || st.Letter != background.LetterOpen {
		r.T.Errorf("run %s: reason %q, class %q, letter %q", s.Run, st.ReasonCode, st.Class, st.Letter)
	}
	p := payloadOf(r, st, receipts.DeadLettered)
	if p.ReasonCode != background.ReasonRequestAltered || p.Error.Type != background.ReasonRequestAltered || p.Error.Message == "" {
		r.T.Errorf("its receipt: %+v", p)
	}
}

// alterRequestSQL returns the SQL that changes the text of a case's request.
func alterRequestSQL(from, to string) string {
	return fmt.Sprintf(`UPDATE recourse.operations SET request = convert_to(replace(convert_from(request,'UTF8'), '%s', '%s'), 'UTF8') WHERE case_id = $case`, from, to)
}

// tamperCase executes SQL on $case.
func tamperCase(r *rig.Rig, s postadjudication.Submitted, sql string) {
	r.T.Helper()
	testkit.Tamper(r.T, r.DB, strings.ReplaceAll(sql, "$case", "'"+s.Case.String()+"'"))
}

func withPayee(n int) postadjudication.Adjudication {
	a := rig.Release(n)
	a.Payload = json.RawMessage(`{"payee":"honest"}`)
	return a
}

// A request that was altered in the database is never sent, by whatever process: its run waits for
// a person, and the others continue.
func TestAnAlteredRequestIsNeverSent(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	sent := r.Escrow.Record(nil)
	whole := r.MustSubmit(withPayee(0))
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
		s := r.MustSubmit(withPayee(n))
		altered[s.Run] = what
		tamperCase(r, s, sql)
	}
	r.OtherProcess().StartWorkers()
	r.WaitNoneLive()
	for run, what := range altered {
		uncalled := rig.Runs{ID: run, Letter: background.LetterOpen, Reason: "request_altered", ErrorType: "request_altered"}
		if called := (rig.Runs{ID: run, Called: true}); r.CountRuns(uncalled) != 1 || r.CountRuns(called) != 0 {
			t.Errorf("%s: the run is not a letter with reason request_altered", what)
		}
		for _, class := range []background.Class{escrow.Executed, escrow.NotExecuted, escrow.Unknown} {
			if r.CountRuns(rig.Runs{ID: run, Class: class}) != 0 {
				t.Errorf("%s: the run is said to be %s", what, class)
			}
		}
	}
	for _, c := range sent() {
		if c.Run != whole.Run || !strings.Contains(string(c.Request), "honest") {
			t.Errorf("%s: sent %s under %s to %s", altered[c.Run], c.Request, c.OperationKey, c.Target)
		}
	}
	if len(sent()) != 1 || r.StatusOf(whole.Run).State != background.Succeeded {
		t.Errorf("%d calls", len(sent()))
	}
}

// An altered run is not looked up and can't be forked until its request is restored; then it
// can.
func TestAnAlteredRunWaitsForItsRequestToBeRestored(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	asked := 0
	r.Escrow.SetKeyLife(time.Hour)
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { asked++; return escrow.Answer{Class: escrow.Unknown, Retry: true} })
	sent := r.Escrow.Record(rig.RateLimits)
	a := rig.Release(1)
	a.Payload = json.RawMessage(`{"payee":"honest"}`)
	s := r.MustSubmit(a)
	change := func(from, to string) {
		testkit.Tamper(t, r.DB, fmt.Sprintf(`UPDATE recourse.operations SET request = convert_to(replace(convert_from(request,'UTF8'), '%s', '%s'), 'UTF8')`, from, to))
	}
	change("honest", "mallory")
	r.StartWorkers()
	other := r.OtherProcess()
	// The process that accepted it has the submitted request cached.
	r.WaitState(s.Run, background.DeadLettered)
	for _, c := range sent() {
		if !strings.Contains(string(c.Request), "honest") {
			t.Errorf("sent %s", c.Request)
		}
	}
	r.StopWorkers()
	calls := len(sent())

	var refused *refusal.RefusedError
	if _, err := other.As("acme", "user:ada").DeadLetters.Fork(ctx, s.Run, deadletter.Fork{Reason: "mended"}); !errors.As(err, &refused) || refused.Gate != refusal.GateRequestAltered {
		t.Errorf("fork: %v", err)
	}
	if _, err := rig.Lookup(ctx, other, "acme", s.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateRequestAltered || asked != 0 {
		t.Errorf("lookup: %v, asked %d times", err, asked)
	}
	if err := other.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	change("mallory", "honest")
	r.Escrow.Script(nil)
	forked, err := other.As("acme", "user:ada").DeadLetters.Fork(ctx, s.Run, deadletter.Fork{Reason: "restored"})
	if err != nil {
		t.Fatalf("%+v, %v", forked, err)
	}
	if len(sent()) != calls {
		t.Errorf("%d calls, %d before", len(sent()), calls)
	}
	other.StartWorkers()
	other.WaitNoneLive()
	other.MustAudit()
}

// A run's unknown outcome stays unknown when its request was altered: the escrow service is not
// asked about it.
func TestAnAlteredRunOfUnknownOutcomeIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.SetKeyLife(0) // each unknown outcome is looked up before anything is sent again
	asked := 0
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { asked++; return escrow.Answer{Class: escrow.NotExecuted} })
	s := r.MustSubmit(rig.Release(1))
	testkit.Tamper(t, r.DB,
		`UPDATE recourse.operations SET request = convert_to(replace(convert_from(request,'UTF8'), '1000', '10'), 'UTF8')`,
		`UPDATE recourse.runs SET class = 'unknown'`, `UPDATE recourse.cases SET unknown_open = 1, first_sent_at = now() - interval '1 day'`)
	r.OtherProcess().StartWorkers()
	untilRequestAlteredLetter(r, s, escrow.Unknown)
	if asked != 0 || r.Escrow.TotalCalls() != 0 {
		t.Errorf("asked %d times, called %d times", asked, r.Escrow.TotalCalls())
	}
}

// untilAllDead waits until all runs are dead, and stops the workers.
func untilAllDead(r *rig.Rig, all ...postadjudication.Submitted) {
	r.T.Helper()
	script := r.Escrow.Answer(rig.Refuses)
	w := r.OtherProcess().StartWorkers()
	for _, s := range all {
		r.WaitLetter(s.Run)
	}
	w.StopWorkers()
	r.Escrow.Script(script)
}

// Each later run of a case is bound by its own receipt: a fork under the same key and
// under a new one, a fork of a fork, and a higher generation.
func TestLaterRunsAreBoundByTheirOwnReceipts(t *testing.T) {
	t.Parallel()
	for _, replays := range []bool{false, true} {
		t.Run(fmt.Sprintf("a fork has a new key: %t", replays), func(t *testing.T) {
			t.Parallel()
			e := rig.NewEscrow()
			url := testkit.Migrated(t)
			_, redis := testkit.Redis(t)
			executor := func(c *postadjudication.Config) {
				if replays {
					c.Executor = replayingEscrow{e}
				}
			}
			r := rig.Join(t, url, redis, e, executor)
			var first []postadjudication.Submitted
			for n := range 6 {
				first = append(first, r.MustSubmit(withPayee(n)))
			}
			untilAllDead(r, first...)
			twice := []postadjudication.Submitted{r.MustFork(first[0]), r.MustFork(first[1])}
			untilAllDead(r, twice...)
			generation := func(n int) postadjudication.Submitted {
				a := rig.Refund(n)
				a.Generation = 2
				return r.MustSubmit(a)
			}
			good := []postadjudication.Submitted{r.MustFork(twice[0]), r.MustFork(first[2]), generation(4)}
			bad := []postadjudication.Submitted{r.MustFork(twice[1]), r.MustFork(first[3]), generation(5)}
			for _, s := range bad {
				tamperCase(r, s, alterRequestSQL(`"generation":`, `"generation": `))
			}
			calls := e.TotalCalls()
			r.OtherProcess(executor).StartWorkers()
			r.WaitNoneLive()
			for _, s := range bad {
				untilRequestAlteredLetter(r, s, "")
			}
			for _, s := range good {
				if st := r.StatusOf(s.Run); st.State != background.Succeeded {
					t.Errorf("%+v", st)
				}
			}
			if n := e.TotalCalls() - calls; n != len(good) {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// withoutRequestDigests takes the digest of the request out of the receipts of a case, whose chain holds.
func withoutRequestDigests(r *rig.Rig, caseID receipts.CaseID) {
	r.T.Helper()
	trail, err := r.Receipts(context.Background(), "acme", caseID, 0, 1000)
	if err != nil {
		r.T.Fatal(err)
	}
	head, changes := receipts.Genesis(caseID), []string(nil)
	for _, e := range trail {
		entry, err := receipts.Parse(e.Body)
		if err != nil {
			r.T.Fatal(err)
		}
		entry.Payload.RequestDigest = ""
		body, err := entry.Draft.AppendBody(nil, caseID, entry.Tenant)
		if err != nil {
			r.T.Fatal(err)
		}
		head = head.Next(body)
		changes = append(changes, fmt.Sprintf(`UPDATE recourse.receipts SET body = convert_from('\x%x', 'UTF8'), link = '\x%x' WHERE case_id = '%s' AND seq = %d`, body, head.Link, caseID, head.Seq))
	}
	testkit.Tamper(r.T, r.DB, append(changes, fmt.Sprintf(`UPDATE recourse.cases SET last_link = '\x%x' WHERE id = '%s'`, head.Link, caseID))...)
}

// A request that no receipt states the digest of is not sent.
func TestARequestWithoutADigestIsNeverSent(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	dead := r.MustSubmit(withPayee(1))
	untilAllDead(r, dead)
	calls := r.Escrow.TotalCalls()
	fresh, fork := r.MustSubmit(withPayee(2)), r.MustFork(dead)
	for _, s := range []postadjudication.Submitted{fresh, fork} {
		withoutRequestDigests(r, s.Case)
	}
	r.OtherProcess().StartWorkers()
	for _, s := range []postadjudication.Submitted{fresh, fork} {
		untilRequestAlteredLetter(r, s, "")
	}
	if n := r.Escrow.TotalCalls() - calls; n != 0 {
		t.Errorf("%d calls", n)
	}
}

// A plain task is run with the submitted payload, or not at all.
func TestAnAlteredTaskIsNotRun(t *testing.T) {
	t.Parallel()
	var given []string
	chores := postadjudication.PlainFamily{Name: "chores", Handle: func(_ context.Context, a background.Attempt) background.Result {
		given = append(given, string(a.Run.Payload))
		return background.Result{Class: escrow.Executed}
	}}
	withChores := func(c *postadjudication.Config) { c.Families = []postadjudication.PlainFamily{chores} }
	r := rig.New(t, withChores)
	s, err := r.SubmitTask(context.Background(), postadjudication.Task{Tenant: "acme", Family: "chores", Payload: json.RawMessage(`{"mail":"ada"}`)})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Tamper(t, r.DB, `UPDATE recourse.runs SET payload = '{"mail":"eve"}'`)
	r.OtherProcess(withChores).StartWorkers()
	untilRequestAlteredLetter(r, s, "")
	if len(given) != 0 {
		t.Errorf("%q", given)
	}
}

// A late payment is recorded by the submitted terms, whatever the row says now.
func TestALatePaymentIsOfTheOutcomeThatWasSubmitted(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.TimeLimit = 100 * time.Millisecond })
	hang := make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer { <-hang; return r.Escrow.Pay(c, c.Amount.Minor) })
	r.Escrow.SetKeyLife(0)
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { return escrow.Answer{Class: escrow.Unknown, Retry: true} })
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	testkit.Tamper(t, r.DB, `UPDATE recourse.operations SET request = convert_to(replace(convert_from(request,'UTF8'), 'release', 'refund'), 'UTF8')`)
	close(hang)
	r.WaitStatus("the letter is reconciled", s.Run, func(s casestatus.Status) bool { return s.Letter == background.LetterReconciled })
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled || c.Released != 1000 || c.Refunded != 0 {
		t.Errorf("%+v", c)
	}
}
