package postadjudication_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

// eventReader reads a tenant's events in pages of an odd size until it is told to stop and has
// reached the end.
type eventReader struct {
	events []postadjudication.Event
	next   postadjudication.Position
}

func (d *eventReader) page(t *testing.T, s *postadjudication.Service, tenant string, limit int) bool {
	t.Helper()
	events, next, err := s.Events(context.Background(), tenant, d.next, limit)
	if err != nil {
		return true // the connection may be killed; the cursor stays valid
	}
	if next < d.next {
		t.Fatalf("the position fell from %d to %d", d.next, next)
	}
	for _, e := range events {
		if e.Position <= d.next || e.Position > next {
			t.Fatalf("event at %d, read after %d up to %d", e.Position, d.next, next)
		}
		d.next = e.Position
	}
	d.events, d.next = append(d.events, events...), next
	return len(events) > 0
}

// letters counts the dead-letter events by run, and checks the order within each case.
func (d *eventReader) letters(t *testing.T) map[background.RunID]int {
	t.Helper()
	seen, last := map[string]bool{}, map[receipts.CaseID]int64{}
	out := map[background.RunID]int{}
	for _, e := range d.events {
		if seen[e.ID] {
			t.Fatalf("event %s was read twice", e.ID)
		}
		seen[e.ID] = true
		var seq, place int64
		if parts := strings.Split(e.ID, "."); len(parts) != 3 {
			t.Fatalf("id %s", e.ID)
		} else {
			seq, place = parseNumber(t, parts[1]), parseNumber(t, parts[2])
		}
		if at := seq*postadjudication.PositionsPerReceipt + place; at <= last[e.Case] {
			t.Fatalf("%s comes after a later one of its case", e.ID)
		} else {
			last[e.Case] = at
		}
		if e.Type == events.RunDeadLettered {
			out[e.Run]++
		}
	}
	return out
}

func parseNumber(t *testing.T, s string) (n int64) {
	t.Helper()
	for _, c := range s {
		if c < '0' || c > '9' {
			t.Fatalf("%q is no number", s)
		}
		n = 10*n + int64(c-'0')
	}
	return n
}

func drainEvents(r *rig.Rig) {
	r.T.Helper()
	if err := r.DrainEvents(context.Background()); err != nil {
		r.T.Fatal(err)
	}
}

// Sixteen writers in two processes, whose connections and the sequencer's are killed
// repeatedly: a reader with a cursor sees every dead letter once.
func TestAReaderSeesEveryDeadLetterOnceWhileConnectionsAreKilled(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.Escrow.Answer(rig.Refuses)
	other := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow).StartWorkers()
	const writers, each = 16, 8
	stopKilling := killRepeatedly(r, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND (pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted) OR random() < 0.1)`)
	var read eventReader
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for more := true; more; {
			select {
			case <-stop:
				more = read.page(t, r.Service, "acme", 7)
			default:
				read.page(t, r.Service, "acme", 7)
			}
		}
	}()
	var all sync.WaitGroup
	for w := range writers {
		from := []*rig.Rig{r, other}[w%2]
		all.Go(func() {
			for i := range each {
				for {
					s, err := from.Submit(context.Background(), rig.Release(w*each+i))
					if err == nil && (s.Reply.Accepted() || s.Reply == postadjudication.DeadLettered) {
						break
					}
				}
			}
		})
	}
	all.Wait()
	untilRetrying(r, "all dead", `SELECT count(*) = $1 FROM recourse.runs WHERE letter = 'open'`, writers*each)
	stopKilling()
	// The last kill may still meet a drain.
	r.Wait("the events are drained", func() bool { return r.DrainEvents(context.Background()) == nil })
	close(stop)
	<-done
	letters := read.letters(t)
	if len(letters) != writers*each {
		t.Errorf("%d dead letters read of %d", len(letters), writers*each)
	}
	for run, n := range letters {
		if n != 1 {
			t.Errorf("the letter of %s has %d events", run, n)
		}
	}
	if n := r.Count(`SELECT max(last) - (SELECT count(*) FROM recourse.receipts) FROM recourse.event_log`); n != 0 {
		t.Errorf("the last number is off the count of receipts by %d", n)
	}
	r.MustAudit()
}

// killRepeatedly runs a statement that kills connections every 40ms, until the returned
// function is called.
func killRepeatedly(r *rig.Rig, statement string) (stop func()) {
	r.T.Helper()
	killerConn, err := r.DB.Conn(context.Background())
	if err != nil {
		r.T.Fatal(err)
	}
	ended := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		tick := time.NewTicker(40 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				if _, err := killerConn.ExecContext(context.Background(), statement); err != nil {
					r.T.Error(err)
				}
			}
		}
	})
	return func() {
		close(ended)
		killer.Wait()
		if err := killerConn.Close(); err != nil {
			r.T.Error(err)
		}
	}
}

// A dead-letter event has the reason and the number of attempts, and the run's failure is the
// last event of the run.
func TestADeadLetterIsReportedWithItsReasonAndAttempts(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.Escrow.Answer(rig.RateLimits)
	s := r.MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	drainEvents(r)
	var d eventReader
	for d.page(t, r.Service, "acme", 3) {
	}
	var reported []string
	for _, e := range d.events {
		reported = append(reported, string(e.Type))
		if e.Type != events.RunDeadLettered {
			continue
		}
		if want := (events.Data{RunID: s.Run, NodeID: "execute", Reason: "retry_exhausted: http.rate_limited", Attempts: 3}); e.Data != want {
			t.Errorf("%+v", e.Data)
		}
	}
	want := "run.created run.started node.started node.retried node.started node.retried node.started node.failed run.dead_lettered run.failed"
	if got := strings.Join(reported, " "); got != want {
		t.Errorf("%s", got)
	}
	again, next, err := r.Events(context.Background(), "acme", 0, postadjudication.MaxEvents)
	if err != nil || next != d.next || !slices.EqualFunc(again, d.events, func(a, b postadjudication.Event) bool { return a.ID == b.ID && a.Position == b.Position }) {
		t.Errorf("a second reading differs: %v", err)
	}
	for i, e := range again { // any event's position is a cursor
		if rest, _, err := r.Events(context.Background(), "acme", e.Position, postadjudication.MaxEvents); err != nil || len(rest) != len(again)-i-1 {
			t.Errorf("after %s: %d of %d, %v", e.ID, len(rest), len(again)-i-1, err)
		}
	}
	r.MustAudit()
}

// If the sequencer's connection dies, another process takes over numbering within seconds.
func TestAnotherProcessTakesOverTheSequence(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	holder, follower := r.Journal().Outbox.Sequencer(), rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow).Journal().Outbox.Sequencer()
	ctx := context.Background()
	r.MustSubmit(rig.Release(1))
	if step, err := holder.Step(ctx); err != nil || !step.Holds || step.Rows != 1 || len(step.Tenants) != 1 {
		t.Fatalf("%+v, %v", step, err)
	}
	r.MustSubmit(rig.Release(2))
	if step, err := follower.Step(ctx); err != nil || step.Holds || step.Rows != 0 {
		t.Fatalf("a second process numbers at the same time: %+v, %v", step, err)
	}
	if n := r.Count(`SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); n != 1 {
		t.Fatalf("%d holders", n)
	}
	r.Wait("the lock is free", func() bool {
		return r.QueryBool(`SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	})
	if step, err := follower.Step(ctx); err != nil || !step.Holds || step.Rows != 1 {
		t.Fatalf("%+v, %v", step, err)
	}
	if _, err := holder.Step(ctx); err == nil {
		t.Error("the old holder numbers over a dead connection")
	}
	if step, err := holder.Step(ctx); err != nil || step.Holds {
		t.Errorf("the old holder does not reconnect: %+v, %v", step, err)
	}
	if err := errors.Join(follower.Release(), holder.Release()); err != nil {
		t.Error(err)
	}
	r.MustAudit()
}

// Receipts that a caller's transaction commits late are numbered late and not missed, though
// later ids were numbered before them.
func TestATransactionThatCommitsLateIsNotMissed(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	tx, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	late, err := r.SubmitTx(ctx, tx, rig.Release(1))
	if err != nil {
		t.Fatal(err)
	}
	r.MustSubmit(rig.Release(2))
	drainEvents(r)
	events, next, err := r.Events(ctx, "acme", 0, 10)
	if err != nil || len(events) != 1 || events[0].Run == late.Run {
		t.Fatalf("%+v, %v", events, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	drainEvents(r)
	if events, _, err = r.Events(ctx, "acme", next, 10); err != nil || len(events) != 1 || events[0].Run != late.Run {
		t.Fatalf("%+v, %v", events, err)
	}
	r.MustAudit()
}

func TestATenantReadsItsOwnEventsOnly(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	var batch []postadjudication.Adjudication
	for n := range 40 {
		a := rig.Release(n)
		if n%2 == 1 {
			a.Tenant = "bank"
		}
		batch = append(batch, a)
	}
	if _, errs := r.SubmitBatch(ctx, batch); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	drainEvents(r)
	for _, tenant := range []string{"acme", "bank"} {
		events, _, err := r.Events(ctx, tenant, 0, postadjudication.MaxEvents)
		if err != nil || len(events) != 20 {
			t.Errorf("%s: %d events, %v", tenant, len(events), err)
		}
		for _, e := range events {
			if e.Tenant != tenant {
				t.Errorf("%s reads %+v", tenant, e)
			}
		}
	}
	for _, nobody := range []string{"", "other"} {
		if events, next, err := r.Events(ctx, nobody, 5, 10); err != nil || len(events) != 0 || next != 5 {
			t.Errorf("%q: %v, %d, %v", nobody, events, next, err)
		}
	}
	if events, _, err := r.WaitEvents(ctx, "", 0, 10); err != nil || events != nil {
		t.Errorf("%v, %v", events, err)
	}
	var field *refusal.FieldError
	if _, _, err := r.Events(ctx, "acme", -1, 10); !errors.As(err, &field) {
		t.Errorf("negative position: %v", err)
	}
	if _, _, err := r.Events(ctx, "acme", 0, 0); !errors.As(err, &field) {
		t.Errorf("no limit: %v", err)
	}
	r.MustAudit()
}

// A tenant's positions are independent of the other tenants' receipts, so that nobody can count
// those.
func TestPositionsTellNothingOfOtherTenants(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	positions := func(others int) (out []postadjudication.Position) {
		r := rig.New(t)
		for n := range 4 {
			var batch []postadjudication.Adjudication
			for m := range others * n {
				a := rig.Release(100*n + m)
				a.Tenant = "bank"
				batch = append(batch, a)
			}
			if _, errs := r.SubmitBatch(ctx, append(batch, rig.Release(n))); errors.Join(errs...) != nil {
				t.Fatal(errs)
			}
			drainEvents(r)
		}
		events, next, err := r.Events(ctx, "acme", 0, postadjudication.MaxEvents)
		if err != nil || len(events) != 4 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		for _, e := range events {
			out = append(out, e.Position)
		}
		r.MustAudit()
		return append(out, next)
	}
	if alone, beside := positions(0), positions(3); !slices.Equal(alone, beside) {
		t.Errorf("positions alone %v, with other tenants %v", alone, beside)
	}
}

// A position from before tenants had their own order stays valid, and events before it are not
// repeated.
func TestAPositionThatWasKeptOutlivesTheOrderOfAll(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
	ctx := context.Background()
	both := func(n int) {
		other := rig.Release(n)
		other.Tenant = "bank"
		for _, a := range []postadjudication.Adjudication{other, other, rig.Release(n)} {
			if _, err := r.Submit(ctx, a); err != nil {
				t.Fatal(err)
			}
		}
		drainEvents(r)
	}
	both(1)
	both(2)
	testkit.Tamper(t, r.DB, `UPDATE recourse.event_log SET tenant_last = NULL WHERE last > 2`, `UPDATE recourse.event_log SET tenant_last = NULL`) // as older versions left it
	before, kept, err := r.Events(ctx, "acme", 0, postadjudication.MaxEvents)
	if err != nil || len(before) != 2 {
		t.Fatalf("%+v, %v", before, err)
	}
	both(3)
	both(4)
	after, next, err := r.Events(ctx, "acme", kept, postadjudication.MaxEvents)
	if err != nil || len(after) != 2 || after[1].Position-after[0].Position != postadjudication.PositionsPerReceipt || after[0].Position <= kept || next < after[1].Position {
		t.Errorf("after %d: %+v up to %d, %v", kept, after, next, err)
	}
	all, _, err := r.Events(ctx, "acme", 0, postadjudication.MaxEvents)
	if err != nil || len(all) != 4 || all[1].Position != before[1].Position {
		t.Errorf("%+v, %v", all, err)
	}
	r.MustAudit()
	testkit.Tamper(t, r.DB, `UPDATE recourse.event_log SET tenant_last = tenant_last + 1 WHERE tenant = 'acme' AND tenant_last = (SELECT max(tenant_last) FROM recourse.event_log WHERE tenant = 'acme')`)
	a, err := r.Audit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if said := a.Verdict(audit.InvariantOrder); !strings.Contains(said, "missing in the order of events of the tenant") {
		t.Errorf("%q: %+v", said, a.Breaks)
	}
}

// A position beyond the newest one is refused: a reader that continues from it would miss
// events.
func TestAPositionBeyondTheNewestIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
	ctx := t.Context()
	r.MustSubmit(rig.Release(1))
	other := rig.Release(1)
	other.Tenant = "bank"
	for range 2 {
		r.MustSubmit(other)
		other.TransactionReceiptID += "x"
		other.EscrowReference += "x"
	}
	drainEvents(r)
	_, next, err := r.Events(ctx, "acme", 0, postadjudication.MaxEvents)
	if err != nil || next != 2*postadjudication.PositionsPerReceipt-1 {
		t.Fatalf("%d, %v", next, err)
	}
	wait, enough := context.WithTimeout(ctx, time.Millisecond)
	defer enough()
	if events, still, err := r.WaitEvents(wait, "acme", next, 1); err != nil || len(events) > 0 || still != next {
		t.Errorf("at the newest: %+v up to %d, %v", events, still, err)
	}
	for name, read := range map[string]func(context.Context, string, postadjudication.Position, int) ([]postadjudication.Event, postadjudication.Position, error){"Events": r.Events, "WaitEvents": r.WaitEvents} {
		for tenant, after := range map[string]postadjudication.Position{"acme": next + 1, "nobody": postadjudication.PositionsPerReceipt, "bank": math.MaxInt64} {
			var wrong *refusal.FieldError
			if events, _, err := read(ctx, tenant, after, 1); !errors.As(err, &wrong) || wrong.Field != "after" || len(events) > 0 {
				t.Errorf("%s of %s after %d: %+v, %v", name, tenant, after, events, err)
			}
		}
	}
	r.MustSubmit(rig.Release(2))
	drainEvents(r)
	if events, _, err := r.Events(ctx, "acme", next, postadjudication.MaxEvents); err != nil || len(events) == 0 {
		t.Errorf("after %d: %+v, %v", next, events, err)
	}
}

// A waiting reader receives new events from this process or another, and none when its context
// is done.
func TestAWaitingReaderIsWokenByTheNextEvent(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	elsewhere := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow)
	var after [2]postadjudication.Position
	for i, from := range []*rig.Rig{r, elsewhere} {
		got := make(chan []postadjudication.Event, 2)
		for k, who := range []*rig.Rig{r, elsewhere} {
			go func() {
				events, next, err := who.WaitEvents(context.Background(), "acme", after[k], 100)
				if err != nil {
					t.Error(err)
				}
				after[k] = next
				got <- events
			}()
		}
		s := from.MustSubmit(rig.Release(i))
		for range 2 {
			if read := <-got; len(read) == 0 || read[0].Type != events.RunCreated || read[0].Run != s.Run {
				t.Errorf("%+v", read)
			}
		}
		r.WaitNoneLive()
		drainEvents(r)
		for k := range after {
			_, next, err := r.Events(context.Background(), "acme", after[k], 100)
			if err != nil {
				t.Fatal(err)
			}
			after[k] = next
		}
	}
	over, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if events, next, err := r.WaitEvents(over, "acme", after[0], 100); err != nil || len(events) != 0 || next != after[0] {
		t.Errorf("%v, %d, %v", events, next, err)
	}
	r.MustAudit()
}
