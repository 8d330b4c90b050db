package conformance_test

import (
	"slices"
	"testing"
)

// situation is a state that a job can be in. A discarded job is a dead letter, or is none.
type situation struct {
	name  string
	state string
	make  func(q *queue) string // makes such a job, alone in a queue of its own, and returns its id
}

// alone moves to a queue that nothing else is in.
func (q *queue) alone() *queue {
	q.name = "q-" + token()
	return q
}

var situations = []situation{
	{"available", "available", func(q *queue) string { return q.alone().enqueue().text("id") }},
	{"scheduled", "scheduled", func(q *queue) string { return q.alone().enqueue(members{"scheduled_at": "+PT1H"}).text("id") }},
	{"pending", "pending", func(q *queue) string {
		return q.alone().enqueue(members{"options": members{"pending": true}}).text("id")
	}},
	{"active", "active", func(q *queue) string {
		id := q.alone().enqueue(patient).text("id")
		q.fetch()
		return id
	}},
	{"retryable", "retryable", func(q *queue) string {
		id := q.alone().enqueue(patient).text("id")
		q.fail()
		return id
	}},
	{"completed", "completed", func(q *queue) string {
		id := q.alone().enqueue().text("id")
		q.ack(q.fetch().text("id"))
		return id
	}},
	{"cancelled", "cancelled", func(q *queue) string {
		id := q.alone().enqueue().text("id")
		remove(q.t, root+"/jobs/"+id).must(200)
		return id
	}},
	{"discarded", "discarded", func(q *queue) string {
		id := q.alone().enqueue(oneRun(members{"on_exhaustion": "discard"})).text("id")
		q.fail()
		return id
	}},
	{"dead letter", "discarded", func(q *queue) string { return q.alone().dead().text("id") }},
}

// asked is a request that can be made of a job.
type asked struct {
	name    string
	allowed []string // situations
	then    []string // states after it
	code    string   // of the refusal
	send    func(q *queue, id string) *answer
}

var notTerminal = []string{"available", "scheduled", "pending", "active", "retryable"}

var requests = []asked{
	{"ack", []string{"active"}, []string{"completed"}, "conflict", func(q *queue, id string) *answer { return q.askAck(id) }},
	{"nack", []string{"active"}, []string{"retryable"}, "conflict", func(q *queue, id string) *answer { return q.askNack(id, failure()) }},
	{"requeue", []string{"active"}, []string{"available"}, "conflict", func(q *queue, id string) *answer {
		return q.askNack(id, failure(), members{"requeue": true})
	}},
	{"cancel", notTerminal, []string{"cancelled"}, "conflict", func(q *queue, id string) *answer { return remove(q.t, root+"/jobs/"+id) }},
	{"activate", []string{"pending"}, []string{"available"}, "conflict", func(q *queue, id string) *answer {
		return post(q.t, root+"/jobs/"+id+"/activate", nil)
	}},
	{"letter", []string{"dead letter"}, []string{"discarded"}, "not_found", func(q *queue, id string) *answer { return get(q.t, letters+"/"+id) }},
	{"retry", []string{"dead letter"}, []string{"available"}, "not_found", func(q *queue, id string) *answer {
		return post(q.t, letters+"/"+id+"/retry", members{})
	}},
	{"delete", []string{"dead letter"}, nil, "not_found", func(q *queue, id string) *answer { return remove(q.t, letters+"/"+id) }},
}

// Every pair of state and request. What is refused changes nothing.
func TestSTA_11_EveryPairOfStateAndRequest(t *testing.T) {
	t.Parallel()
	for _, s := range situations {
		for _, r := range requests {
			t.Run(r.name+" of "+s.name, func(t *testing.T) {
				t.Parallel()
				q := newQueue(t)
				id := s.make(q)
				before := find(t, id)
				before.is("state", s.state)
				a := r.send(q, id)
				if !slices.Contains(r.allowed, s.name) {
					checkRefusal(t, a, r.code, s.state)
					if after := find(t, id); text(after.members) != text(before.members) {
						t.Errorf("the refusal changed the job: it was %s, and is %s", text(before.members), text(after.members))
					}
					return
				}
				a.must(200)
				if r.then == nil {
					get(t, root+"/jobs/"+id).refused(404, "not_found")
				} else if got := find(t, id).text("state"); !slices.Contains(r.then, got) {
					t.Errorf("the job is %s, want %s", got, r.then)
				}
			})
		}
	}
}

// checkRefusal checks the refusal of a request for the state of the job. If it names the state, it is the
// right one.
func checkRefusal(t *testing.T, a *answer, code, state string) {
	t.Helper()
	status := map[string]int{"conflict": 409, "not_found": 404}[code]
	problem := a.refused(status, code)
	details, given := problem.members["details"].(members)
	if named, is := details["current_state"]; given && is && named != state {
		t.Errorf("%s: details.current_state %v, want %s", a.name, named, state)
	}
}

func TestSTA_12_OnlyAnAvailableJobIsFetched(t *testing.T) {
	t.Parallel()
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			id := s.make(q)
			before := find(t, id)
			jobs := q.take(members{"count": 10})
			if s.name == "available" {
				if len(jobs) != 1 || jobs[0].text("id") != id {
					t.Errorf("fetched %v, want %s", ids(jobs), id)
				}
				return
			}
			if len(jobs) > 0 {
				t.Errorf("fetched %v, want nothing", ids(jobs))
			}
			if after := find(t, id); text(after.members) != text(before.members) {
				t.Errorf("the job was %s, and is %s", text(before.members), text(after.members))
			}
		})
	}
}

func TestSTA_13_OnlyAnActiveJobIsExtended(t *testing.T) {
	t.Parallel()
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			id := s.make(q)
			extended := q.heartbeat(id).list("jobs_extended")
			if want := s.name == "active"; (len(extended) == 1 && extended[0] == id) != want || len(extended) > 1 {
				t.Errorf("extended %v; the job is active: %v", extended, want)
			}
			find(t, id).is("state", s.state)
		})
	}
}
