package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// attempt is a job that a worker was given.
type attempt struct {
	*worker
	job    job
	length time.Duration // of its lease
}

// behaviours are the ways in which an attempt is made, by weight.
var behaviours = []struct {
	weight int
	make   func(*attempt, context.Context) error
}{
	{36, (*attempt).honestly},
	{8, (*attempt).slowly},
	{6, (*attempt).late},
	{6, (*attempt).twice},
	{16, (*attempt).failing},
	{8, (*attempt).finallyFailing},
	{3, (*attempt).handingBack},
	{3, (*attempt).silently},
	{3, (*attempt).killed},
	{3, (*attempt).frozen},
	{2, (*attempt).underAnotherName},
	{2, (*attempt).ofAnother},
	{2, (*attempt).ofNone},
	{2, (*attempt).withoutWork},
}

// run makes the attempt in a manner that the seed draws.
func (a *attempt) run(ctx context.Context) error {
	if a.honest {
		return a.honestly(ctx)
	}
	sum := 0
	for _, m := range behaviours {
		sum += m.weight
	}
	roll := a.rng.IntN(sum)
	for _, m := range behaviours {
		if roll -= m.weight; roll < 0 {
			return m.make(a, ctx)
		}
	}
	return nil // not reached: the weights add up
}

// work does what a job asks for. An effect is in the ledger when it returns. Jobs of a type that
// needs other work, as one that pays, get a case here.
func (p *worker) work(ctx context.Context, a *attempt) error {
	switch a.job.Type {
	case WorkType:
		return p.ledger.post(ctx, a.entry(Entry{Kind: Effect}))
	}
	return fmt.Errorf("a job of type %q", a.job.Type)
}

// WorkType is the type of the jobs whose work is an entry in the ledger.
const WorkType = "chaos.work"

func (a *attempt) entry(e Entry) Entry {
	e.Worker, e.Job, e.Lease, e.Attempt = a.name, a.job.ID, a.job.StartedAt, a.job.Attempt
	return e
}

// answer is what a worker says about a job, and how.
type answer struct {
	verb   Verb
	job    string // of a lie: another one than it was given
	name   string // under which it answers
	lie    Lie
	final  bool // of a nack: another attempt would not help
	during func() error
}

// say sends an answer. The ledger has it before the server does, and then the reply.
func (a *attempt) say(ctx context.Context, say answer) error {
	a.asked++
	e := a.entry(Entry{Kind: Asked, Verb: say.verb, Name: say.name, Lie: say.lie, Final: say.final, Key: fmt.Sprintf("%s/%d", a.name, a.asked)})
	body := map[string]any{"job_id": say.job, "worker_id": say.name}
	if say.lie != "" && say.lie != NotDone {
		e.Job, e.Lease, e.Attempt = say.job, "", 0
	} else if a.rng.IntN(2) == 0 {
		e.Named, body["attempt"] = true, a.job.Attempt
	}
	path := workersPath + "nack"
	switch say.verb {
	case Ack:
		path = workersPath + "ack"
		body["result"] = map[string]string{"key": e.Key}
	case Nack:
		body["error"] = map[string]any{"code": "chaos", "message": "it failed", "retryable": !say.final}
	case HandBack:
		body["error"], body["requeue"] = map[string]any{}, true
	}
	if err := a.ledger.post(ctx, e); err != nil {
		return err
	}
	replied := make(chan reply, 1)
	go func() { replied <- a.door.send(ctx, http.MethodPost, path, body) }()
	if say.during != nil {
		if err := say.during(); err != nil {
			return err
		}
	}
	r := <-replied
	if r.status == 0 {
		return nil
	}
	e.Kind, e.Status, e.Sent, e.Received = Answered, r.status, r.sent, r.received
	return a.ledger.post(ctx, e)
}

// ack acknowledges the job truly.
func (a *attempt) ack(ctx context.Context) error {
	return a.say(ctx, answer{verb: Ack, job: a.job.ID, name: a.name})
}

func (a *attempt) honestly(ctx context.Context) error {
	if err := a.work(ctx, a); err != nil {
		return err
	}
	return a.ack(ctx)
}

// slowly takes longer than the lease, and extends it meanwhile.
func (a *attempt) slowly(ctx context.Context) error {
	const beats = 6
	if err := a.work(ctx, a); err != nil {
		return err
	}
	for range beats {
		wait(ctx, a.length/4)
		a.door.send(ctx, http.MethodPost, workersPath+"heartbeat", map[string]any{"worker_id": a.name, "active_jobs": []string{a.job.ID}})
	}
	return a.ack(ctx)
}

// late answers after the end of the lease.
func (a *attempt) late(ctx context.Context) error {
	if err := a.work(ctx, a); err != nil {
		return err
	}
	wait(ctx, a.length+time.Duration(a.rng.IntN(1500))*time.Millisecond)
	return a.ack(ctx)
}

// twice sends the same answer again, at once or a little later.
func (a *attempt) twice(ctx context.Context) error {
	if err := a.honestly(ctx); err != nil {
		return err
	}
	wait(ctx, time.Duration(a.rng.IntN(2)*300)*time.Millisecond)
	return a.ack(ctx)
}

func (a *attempt) failing(ctx context.Context) error {
	return a.say(ctx, answer{verb: Nack, job: a.job.ID, name: a.name})
}

func (a *attempt) finallyFailing(ctx context.Context) error {
	return a.say(ctx, answer{verb: Nack, job: a.job.ID, name: a.name, final: true})
}

func (a *attempt) handingBack(ctx context.Context) error {
	return a.say(ctx, answer{verb: HandBack, job: a.job.ID, name: a.name})
}

// silently does the work, and says nothing.
func (a *attempt) silently(ctx context.Context) error { return a.work(ctx, a) }

// killed dies before the work, after it, or while the answer is on its way.
func (a *attempt) killed(ctx context.Context) error {
	return a.interrupted(ctx, syscall.SIGKILL)
}

// frozen stops at one of these places, until the runner wakes the process, when the lease is over.
func (a *attempt) frozen(ctx context.Context) error {
	return a.interrupted(ctx, syscall.SIGSTOP)
}

func (a *attempt) interrupted(ctx context.Context, by syscall.Signal) error {
	interrupt := func() error { return syscall.Kill(os.Getpid(), by) }
	place := a.rng.IntN(3)
	if place == 0 {
		if err := interrupt(); err != nil {
			return err
		}
	}
	if err := a.work(ctx, a); err != nil {
		return err
	}
	if place == 1 {
		if err := interrupt(); err != nil {
			return err
		}
	}
	say := answer{verb: Ack, job: a.job.ID, name: a.name}
	if place == 2 {
		say.during = func() error {
			wait(ctx, time.Duration(a.rng.IntN(5))*time.Millisecond)
			return interrupt()
		}
	}
	return a.say(ctx, say)
}

// underAnotherName does the work, and acknowledges it as somebody else.
func (a *attempt) underAnotherName(ctx context.Context) error {
	if err := a.work(ctx, a); err != nil {
		return err
	}
	return a.say(ctx, answer{verb: Ack, job: a.job.ID, name: a.name + "-other", lie: OtherName})
}

// ofAnother acknowledges, beside its own job, one that another worker was given.
func (a *attempt) ofAnother(ctx context.Context) error {
	r := a.ledger.send(ctx, http.MethodGet, "/recent?worker="+a.name, nil)
	var others []Entry
	if err := json.Unmarshal(r.body, &others); err != nil || !r.ok() {
		return fmt.Errorf("remote: the ledger answered %s", r)
	}
	if len(others) > 0 {
		// The worker may have been given it since: then the answer is true, and the verification
		// knows that by the ledger.
		if err := a.say(ctx, answer{verb: Ack, job: others[a.rng.IntN(len(others))].Job, name: a.name, lie: NotHeld}); err != nil {
			return err
		}
	}
	return a.honestly(ctx)
}

// ofNone acknowledges, beside its own job, one that never was.
func (a *attempt) ofNone(ctx context.Context) error {
	if err := a.say(ctx, answer{verb: Ack, job: uuid.Must(uuid.NewV7()).String(), name: a.name, lie: NeverExisted}); err != nil {
		return err
	}
	return a.honestly(ctx)
}

// withoutWork acknowledges what it has not done.
func (a *attempt) withoutWork(ctx context.Context) error {
	return a.say(ctx, answer{verb: Ack, job: a.job.ID, name: a.name, lie: NotDone})
}
