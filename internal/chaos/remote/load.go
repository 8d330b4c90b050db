package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Load enqueues jobs over HTTP, and has people act on them.
type Load struct {
	Record
	door client
	seed uint64

	activations sync.WaitGroup
}

// callerTimeout is how long a caller waits for an answer before it asks again: longer than a purge waits
// for its plan.
const callerTimeout = 25 * time.Second

// NewLoad returns a load of the jobs at a URL before /ojs.
func NewLoad(url string, seed uint64) *Load {
	return &Load{door: newClient(url, callerTimeout), seed: seed}
}

// Run enqueues jobs at a rate, in jobs a second, until ctx ends, and returns when each was answered or
// limit is over after that. Which ones depends on the seed only.
func (l *Load) Run(ctx context.Context, rate int, limit time.Duration) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	sending, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	var all sync.WaitGroup
	for n := uint64(0); ; n++ {
		select {
		case <-tick.C:
			all.Go(func() { l.enqueue(sending, rand.New(rand.NewPCG(l.seed, n))) })
			continue
		case <-ctx.Done():
		}
		break
	}
	defer time.AfterFunc(limit, giveUp).Stop()
	all.Wait()
	l.activations.Wait()
}

// uniqueKeys is how many keys the unique jobs share.
const uniqueKeys = 8

// draw returns a job with its envelope.
func draw(rng *rand.Rand) (e Enqueued, pending bool, body map[string]any) {
	e.ID, e.Queue = uuid.Must(uuid.NewV7()).String(), Queues()[rng.IntN(len(Queues()))]
	retry := map[string]any{"max_attempts": 1 + rng.IntN(4), "initial_interval_ms": 20 + rng.IntN(400), "on_exhaustion": "discard"}
	body = map[string]any{"id": e.ID, "type": WorkType, "queue": e.Queue, "args": []string{e.ID}, "retry": retry}
	roll := rng.IntN(100)
	if rng.IntN(2) == 0 && roll >= 15 { // unique jobs are discarded: a retry would have to find its place again
		e.DeadLetter = true
		retry["on_exhaustion"] = "dead_letter"
	}
	switch {
	case roll < 15:
		e.UniqueKey = fmt.Sprint(rng.IntN(uniqueKeys))
		e.Replaces = rng.IntN(3) == 0
		conflict := "reject"
		if e.Replaces {
			conflict = "replace"
		}
		body["args"] = []string{"unique", e.UniqueKey}
		body["unique"] = map[string]any{"keys": []string{"type", "args"}, "on_conflict": conflict}
	case roll < 30:
		e.NotBefore = time.Now().Add(time.Duration(500+rng.IntN(8000)) * time.Millisecond).UTC().Truncate(time.Millisecond)
		body["scheduled_at"] = e.NotBefore.Format("2006-01-02T15:04:05.000Z")
	case roll < 36:
		pending = true
		body["pending"] = true
	}
	if rng.IntN(4) == 0 {
		body["priority"] = rng.IntN(201) - 100
	}
	return e, pending, body
}

// pause is how long a caller waits before it asks again.
const pause = 50 * time.Millisecond

// enqueue enqueues a job until it is known what became of that: a caller without an answer asks again
// with the same id.
func (l *Load) enqueue(ctx context.Context, rng *rand.Rand) {
	e, pending, body := draw(rng)
	asked := 0
	for e.Sent = time.Now(); ; wait(ctx, pause) {
		if ctx.Err() != nil {
			e.Unknown = true
			break
		}
		r := l.door.send(ctx, http.MethodPost, jobsPath, body)
		asked++
		if r.unknown() || r.status == http.StatusTooManyRequests {
			continue
		}
		e.Received = r.received
		switch existing := r.problem().Error.Details.Existing; {
		case r.status == http.StatusCreated:
			e.Accepted = true
		case r.status == http.StatusConflict && existing == e.ID && asked > 1: // an unanswered request was
			e.Accepted = true
		case r.status == http.StatusConflict && existing != "" && existing != e.ID && e.UniqueKey != "":
		default:
			l.fail("job %s was answered %s", e.ID, r)
		}
		break
	}
	l.enqueued(e)
	if pending && e.Accepted {
		l.activations.Go(func() {
			wait(ctx, time.Duration(rng.IntN(3000))*time.Millisecond)
			l.activate(ctx, e.ID)
		})
	}
}

// activate activates a job until it is known that it is active, or was cancelled. The refusal of a process
// that can't read the job says neither.
func (l *Load) activate(ctx context.Context, id string) {
	for ctx.Err() == nil {
		a := l.ask(ctx, Activate, id, http.MethodPost, jobsPath+"/"+id+"/activate", map[string]any{})
		if a.Status != 0 && a.Status < http.StatusInternalServerError && a.Status != http.StatusTooManyRequests && !a.Unreadable {
			return
		}
		wait(ctx, pause)
	}
}

// ask makes a request of a person, and records what was answered.
func (l *Load) ask(ctx context.Context, verb, id, method, path string, body any) Act {
	r := l.door.send(ctx, method, path, body)
	var after struct {
		Job job `json:"job"`
	}
	_ = json.Unmarshal(r.body, &after) // a refusal has no job
	a := Act{Verb: verb, Job: id, Sent: r.sent, Received: r.received, Status: r.status, State: after.Job.State, Unreadable: r.problem().Error.Details.Rule == "unreadable"}
	l.act(a)
	return a
}

// acts are what people do, by weight.
var acts = []struct {
	verb   string
	weight int
}{{Cancel, 4}, {Retry, 8}, {Delete, 2}, {Purge, 1}}

// People has people act, one act after the other, until ctx ends. What they do depends on the seed only.
func (l *Load) People(ctx context.Context, report func(verb, detail string)) {
	rng := rand.New(rand.NewPCG(l.seed, 1<<63))
	for {
		wait(ctx, time.Duration(100+rng.IntN(500))*time.Millisecond)
		if ctx.Err() != nil {
			return
		}
		sum := 0
		for _, a := range acts {
			sum += a.weight
		}
		roll := rng.IntN(sum)
		for _, a := range acts {
			if roll -= a.weight; roll < 0 {
				report(a.verb, l.Act(context.WithoutCancel(ctx), a.verb, rng))
				break
			}
		}
	}
}

// Act has a person act on a job or on dead letters, and returns what was done.
func (l *Load) Act(ctx context.Context, verb string, rng *rand.Rand) string {
	switch verb {
	case Cancel:
		id := l.someJob(rng.IntN)
		if id == "" {
			return "no job"
		}
		return fmt.Sprintf("%s: %d", id, l.ask(ctx, Cancel, id, http.MethodDelete, jobsPath+"/"+id, nil).Status)
	case Retry, Delete:
		id := l.someLetter(ctx, rng)
		switch {
		case id == "":
			return "no dead letter"
		case verb == Delete:
			return fmt.Sprintf("%s: %d", id, l.ask(ctx, Delete, id, http.MethodDelete, lettersPath+"/"+id, nil).Status)
		}
		return fmt.Sprintf("%s: %d", id, l.retry(ctx, rng, id))
	}
	queue := Queues()[rng.IntN(len(Queues()))]
	r := l.door.send(ctx, http.MethodDelete, lettersPath+"?confirm=true&queue="+queue, nil)
	l.act(Act{Verb: Purge, Queue: queue, Sent: r.sent, Received: r.received, Status: r.status})
	return fmt.Sprintf("queue %s: %s", queue, r)
}

// retry retries a dead letter; every second time two people do at once.
func (l *Load) retry(ctx context.Context, rng *rand.Rand, id string) []int {
	status := make([]int, 1+rng.IntN(2))
	var all sync.WaitGroup
	for i := range status {
		all.Go(func() {
			status[i] = l.ask(ctx, Retry, id, http.MethodPost, lettersPath+"/"+id+"/retry", map[string]any{}).Status
		})
	}
	all.Wait()
	return status
}

// someLetter returns an open dead letter; empty if there is none, or nobody answers.
func (l *Load) someLetter(ctx context.Context, rng *rand.Rand) string {
	r := l.door.send(ctx, http.MethodGet, lettersPath+"?limit=20", nil)
	var page struct {
		Jobs []job `json:"jobs"`
	}
	if !r.ok() || json.Unmarshal(r.body, &page) != nil || len(page.Jobs) == 0 {
		return ""
	}
	return page.Jobs[rng.IntN(len(page.Jobs))].ID
}
