package remote

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// after returns a time so many milliseconds after noon.
func after(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

// evidence is made up: what a run without faults leaves.
type evidence struct {
	Evidence
	keys int
}

// job enqueues a job that is a dead letter in the end if it fails.
func (e *evidence) job(id string, change ...func(*Enqueued)) {
	j := Enqueued{ID: id, Queue: "mail", DeadLetter: true, Accepted: true, Sent: after(0), Received: after(5)}
	for _, f := range change {
		f(&j)
	}
	e.Jobs = append(e.Jobs, j)
	if j.Accepted {
		e.event(eventEnqueued, id, "")
	}
}

func (e *evidence) event(kind, id, worker string) {
	e.Events = append(e.Events, Event{kind, id, worker})
}

// give gives a job to a worker, at a time, for a second.
func (e *evidence) give(id, worker string, at int) {
	e.Entries = append(e.Entries, Entry{At: after(at + 1), Kind: Fetched, Worker: worker, Job: id, Lease: fmt.Sprint(at), Attempt: 1, Length: 1000, Sent: after(at - 1), Received: after(at)})
	e.event(eventStarted, id, worker)
}

func (e *evidence) work(id, worker string, lease int) {
	e.Entries = append(e.Entries, Entry{At: after(lease + 2), Kind: Effect, Worker: worker, Job: id, Lease: fmt.Sprint(lease)})
}

// say sends an answer about a lease that began at a time; a status of 0 is no reply. It returns the key.
func (e *evidence) say(a Entry, lease, at, status int) string {
	e.keys++
	a.At, a.Kind, a.Lease, a.Key = after(at), Asked, fmt.Sprint(lease), fmt.Sprint("key ", e.keys)
	if a.Name == "" {
		a.Name = a.Worker
	}
	e.Entries = append(e.Entries, a)
	if status != 0 {
		a.At, a.Kind, a.Status, a.Sent, a.Received = after(at+10), Answered, status, after(at), after(at+9)
		e.Entries = append(e.Entries, a)
	}
	return a.Key
}

// do does a job, which is completed by that.
func (e *evidence) do(id, worker string, at int) {
	e.give(id, worker, at)
	e.work(id, worker, at)
	key := e.say(Entry{Worker: worker, Job: id, Verb: Ack}, at, at+50, 200)
	e.event(eventCompleted, id, "")
	e.Finals[id] = Final{Found: true, State: completed, Attempt: 1, Limit: 3, Key: key, CreatedAt: after(1), EndedAt: after(at + 55)}
}

// dies lets the only attempt of a job fail for good.
func (e *evidence) dies(id, worker string, at int) {
	e.give(id, worker, at)
	e.say(Entry{Worker: worker, Job: id, Verb: Nack, Final: true}, at, at+50, 200)
	e.Finals[id] = Final{Found: true, State: discarded, Letter: true, Attempt: 1, Limit: 3}
}

func (e *evidence) act(verb, id string, at, status int) {
	e.Acts = append(e.Acts, Act{Verb: verb, Job: id, Sent: after(at), Received: after(at + 9), Status: status})
}

// final changes how a job is at the end.
func (e *evidence) final(id string, change func(*Final)) {
	f := e.Finals[id]
	change(&f)
	e.Finals[id] = f
}

// answered changes the reply to the nth answer of all.
func (e *evidence) answered(n, status int) {
	for i := range e.Entries {
		if e.Entries[i].Kind == Answered && e.Entries[i].Key == fmt.Sprint("key ", n) {
			e.Entries[i].Status = status
		}
	}
}

// goodRun is everything that can happen to jobs, and is right.
func goodRun() *evidence {
	e := &evidence{Evidence: Evidence{Finals: map[string]Final{}}}
	unique := func(key string) func(*Enqueued) {
		return func(j *Enqueued) { j.UniqueKey, j.DeadLetter = key, false }
	}
	e.job("done")
	e.do("done", "w1", 100)                                            // key 1
	e.say(Entry{Worker: "w1", Job: "done", Verb: Ack}, 100, 170, 409)  // key 2: it acknowledges twice
	e.job("late", func(j *Enqueued) { j.NotBefore = after(90) })       // its first worker is late
	e.give("late", "w1", 100)                                          //
	e.do("late", "w2", 1200)                                           // key 3
	e.say(Entry{Worker: "w1", Job: "late", Verb: Ack}, 100, 1300, 409) // key 4
	e.job("dead")                                                      //
	e.dies("dead", "w1", 300)                                          // key 5
	e.job("retried")                                                   //
	e.dies("retried", "w1", 400)                                       // key 6
	e.act(Retry, "retried", 500, 200)                                  //
	e.act(Retry, "retried", 501, 404)                                  // by a second person
	e.event(eventRetried, "retried", "")                               //
	e.do("retried", "w2", 600)                                         // key 7
	e.job("cancelled")                                                 //
	e.Finals["cancelled"] = Final{Found: true, State: cancelled}       //
	e.Acts = append(e.Acts, Act{Verb: Cancel, Job: "cancelled", Sent: after(50), Received: after(60), Status: 200, State: cancelled})
	e.job("deleted")                                                                                 //
	e.dies("deleted", "w1", 700)                                                                     // key 8
	e.act(Delete, "deleted", 800, 200)                                                               //
	e.Finals["deleted"] = Final{}                                                                    //
	e.job("purged", func(j *Enqueued) { j.Queue = "bulk" })                                          //
	e.dies("purged", "w1", 900)                                                                      // key 9
	e.Acts = append(e.Acts, Act{Verb: Purge, Queue: "bulk", Sent: after(990), Received: after(999)}) // it was not answered
	e.Finals["purged"] = Final{}
	e.job("unique", unique("k"))
	e.do("unique", "w1", 1000) // key 10
	e.job("refused", unique("k"), func(j *Enqueued) { j.Accepted = false })
	e.job("unanswered")
	e.do("unanswered", "w2", 1400) // key 11
	e.Entries = e.Entries[:len(e.Entries)-1]
	e.job("lied")
	e.give("lied", "w1", 1500)
	key := e.say(Entry{Worker: "w1", Job: "lied", Verb: Ack, Lie: NotDone}, 1500, 1550, 200) // key 12
	e.event(eventCompleted, "lied", "")
	e.Finals["lied"] = Final{Found: true, State: completed, Key: key}
	e.say(Entry{Worker: "w2", Job: "done", Verb: Ack, Lie: NotHeld}, 0, 1600, 409)                     // key 13
	e.say(Entry{Worker: "w2", Job: "none", Verb: Ack, Lie: NeverExisted}, 0, 1700, 404)                // key 14
	e.say(Entry{Worker: "w2", Job: "late", Verb: Ack, Lie: OtherName, Name: "w2-other"}, 0, 1800, 409) // key 15
	e.job("handed", func(j *Enqueued) { j.DeadLetter = false })                                        //
	e.give("handed", "w1", 2000)                                                                       //
	e.say(Entry{Worker: "w1", Job: "handed", Verb: HandBack}, 2000, 2050, 200)                         // key 16
	e.do("handed", "w2", 2070)                                                                         // key 17
	return e
}

func TestAGoodRunIsFoundToBeGood(t *testing.T) {
	t.Parallel()
	v := Verify(goodRun().Evidence)
	if len(v.Broken) > 0 {
		t.Errorf("%q", v.Broken)
	}
	want := map[string]int{completed: 6, cancelled: 1, "dead letter": 1, "deleted": 2}
	want[completed]++ // the job that was done without an answer to its worker
	if v.Accepted != 11 || fmt.Sprint(v.Places) != fmt.Sprint(want) || v.Leases != 13 || v.Effects != 6 || v.Acks != 6 || v.Refused != 4 || v.Unknown != 1 || fmt.Sprint(v.Lies) != fmt.Sprint(map[Lie]int{NotDone: 1, NotHeld: 1, NeverExisted: 1, OtherName: 1}) {
		t.Errorf("%+v", v)
	}
}

// A verification without findings proves something only if it can find something.
func TestVerifyFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(*evidence)
		want string
	}{
		{"a lost job", func(e *evidence) { e.final("done", func(f *Final) { f.Found = false }) }, "job done was accepted and does not exist, and nobody deleted it"},
		{"a lost job of another queue than was purged", func(e *evidence) { e.Acts[len(e.Acts)-1].Queue = "mail2" }, "job purged was accepted and does not exist"},
		{"a delete that was refused", func(e *evidence) { e.Acts[3].Status = 404 }, "job deleted was accepted and does not exist"},
		{"a deleted job that was never to be a dead letter", func(e *evidence) {
			e.job("gone", func(j *Enqueued) { j.DeadLetter = false })
			e.act(Delete, "gone", 50, 200)
		}, "job gone was accepted and does not exist"},
		{"a deleted job that is there", func(e *evidence) { e.act(Delete, "dead", 900, 200) }, `job dead was deleted, and is "discarded"`},
		{"a stuck job", func(e *evidence) { e.final("dead", func(f *Final) { f.State = "retryable" }) }, "job dead is still retryable"},
		{"a cancel of nobody", func(e *evidence) { e.final("dead", func(f *Final) { f.State = cancelled }) }, "job dead is cancelled, and nobody asked for that"},
		{"a cancel of a unique job that nobody replaced", func(e *evidence) { e.final("unique", func(f *Final) { f.State = cancelled }) }, "job unique is cancelled, and nobody asked for that"},
		{"a cancel that was undone", func(e *evidence) { e.final("cancelled", func(f *Final) { f.State = completed }) }, `job cancelled was cancelled, and is "completed"`},
		{"a dead letter that was dropped", func(e *evidence) { e.final("dead", func(f *Final) { f.Letter = false }) }, "job dead has failed for good: a dead letter false, and should be one true"},
		{"a death before its attempts are spent", func(e *evidence) {
			e.Entries = slices.DeleteFunc(e.Entries, func(n Entry) bool { return n.Job == "dead" && n.Verb == Nack })
		}, "job dead has failed for good after 1 of 3 attempts, and no worker said that"},
		{"a job without an answer", func(e *evidence) { e.Jobs[0].Unknown = true }, "job done was enqueued, and its caller never got an answer"},
		{"a job that is enqueued twice", func(e *evidence) { e.event(eventEnqueued, "done", "") }, "job done was accepted, and was enqueued 2 times"},
		{"a refused job that is enqueued", func(e *evidence) { e.event(eventEnqueued, "refused", "") }, "job refused was refused, and is enqueued all the same"},
		{"a job of nobody", func(e *evidence) { e.event(eventEnqueued, "alien", "") }, "job alien has an event job.enqueued, and nobody enqueued it"},
		{"a job of nobody that is given", func(e *evidence) { e.give("alien", "w1", 1) }, "worker w1 was given job alien, which nobody enqueued"},
		{"two accepted acks", func(e *evidence) { e.answered(2, 200) }, "job done was acknowledged 2 times with success: key 1, key 2"},
		{"two workers' acks", func(e *evidence) { e.answered(4, 200) }, "job late was acknowledged 2 times with success: key 3, key 4"},
		{"an ack that did not last", func(e *evidence) { e.final("done", func(f *Final) { f.State = discarded }) }, `job done was acknowledged with success by key 1, and is "discarded"`},
		{"two receipts of a completion", func(e *evidence) { e.event(eventCompleted, "done", "") }, `job done is "completed", and was completed 2 times by its receipts`},
		{"a completion without a receipt", func(e *evidence) {
			e.Events = slices.DeleteFunc(e.Events, func(n Event) bool { return n.Type == eventCompleted && n.Job == "done" })
		}, `job done is "completed", and was completed 0 times by its receipts`},
		{"a completion by nobody", func(e *evidence) { e.final("done", func(f *Final) { f.Key = "" }) }, `job done is completed by the answer "", which no worker sent`},
		{"a completion by an answer about another job", func(e *evidence) { e.final("done", func(f *Final) { f.Key = "key 3" }) }, `job done is completed by the answer "key 3", which no worker sent`},
		{"a completion by a refused answer", func(e *evidence) { e.final("done", func(f *Final) { f.Key = "key 2" }) }, "job done is completed by the answer key 2, which was refused with 409"},
		{"a completion by another answer than got success", func(e *evidence) {
			e.final("done", func(f *Final) { f.Key = e.say(Entry{Worker: "w1", Job: "done", Verb: Ack}, 100, 155, 0) })
		}, "is completed by the answer key 18, and key 1 got success"},
		{"a completion without work", func(e *evidence) {
			e.Entries = slices.DeleteFunc(e.Entries, func(n Entry) bool { return n.Job == "done" && n.Kind == Effect })
		}, "job done is completed by the answer key 1, and nobody did its work"},
		{"a completion by a lie that nobody answered", func(e *evidence) {
			e.final("unanswered", func(f *Final) {
				f.Key = e.say(Entry{Worker: "w1", Job: "unanswered", Verb: Ack, Lie: OtherName, Name: "other"}, 0, 1440, 0)
			})
		}, "job unanswered is completed by the answer key 18, a lie: under-another-name"},
		{"an accepted lie about a job that another holds", func(e *evidence) { e.answered(13, 200) }, "job done: the answer key 13 was accepted, a lie: of-a-job-that-it-does-not-hold"},
		{"an accepted lie about a job that never was", func(e *evidence) { e.answered(14, 200) }, "job none: the answer key 14 was accepted, a lie: of-a-job-that-never-was"},
		{"an accepted lie under another name", func(e *evidence) { e.answered(15, 200) }, "job late: the answer key 15 was accepted, a lie: under-another-name"},
		{"a retry that did not happen", func(e *evidence) {
			e.Events = slices.DeleteFunc(e.Events, func(n Event) bool { return n.Type == eventRetried })
		}, "job retried was retried 0 times, and 1 requests for that were accepted, 0 not answered"},
		{"a retry that happened twice", func(e *evidence) { e.event(eventRetried, "retried", "") }, "job retried was retried 2 times"},
		{"a replay without a rule", func(e *evidence) { e.event(eventReplayed, "dead", "") }, "job dead was replayed 1 times by a rule"},
		{"a job that two workers hold", func(e *evidence) { e.give("late", "w3", 150) }, "job late was held by w1 and w3 at once, for 649ms"},
		{"a job that two are given, whose answers are accepted", func(e *evidence) {
			e.give("dead", "w3", 320)
			e.say(Entry{Worker: "w3", Job: "dead", Verb: Nack}, 320, 340, 200)
		}, "job dead was held by w1 and w3 at once"},
		{"an attempt that is given twice", func(e *evidence) { e.give("done", "w2", 100) }, "job done was given twice as the attempt of 100, to w1 and w2"},
		{"a lease without a receipt", func(e *evidence) {
			e.Events = slices.DeleteFunc(e.Events, func(n Event) bool { return n.Job == "done" && n.Type == eventStarted })
		}, "job done was given to w1 1 times, and its receipts have 0"},
		{"a start before its time", func(e *evidence) { e.Jobs[1].NotBefore = after(500) }, "job late was given to w1 400ms before its time"},
		{"a refused holder after an earlier cancel", func(e *evidence) {
			e.answered(6, 409)
			e.act(Cancel, "retried", 380, 200)
		}, "job retried was held by w1, whose answer key 6 was refused with 409"},
		{"a refused holder", func(e *evidence) { e.answered(6, 409) }, "job retried was held by w1, whose answer key 6 was refused with 409"},
		{"a job that is given after it was completed", func(e *evidence) { e.give("done", "w2", 1900) }, "job done was given to w2 1.74s after it was completed"},
		{"a job that is given after it was cancelled", func(e *evidence) { e.give("cancelled", "w2", 1900) }, "job cancelled was given to w2 1.839s after it was cancelled"},
		{"a job that is given after it was deleted", func(e *evidence) { e.give("deleted", "w2", 1900) }, "job deleted was given to w2 1.09s after it was deleted"},
		{"an answer that is accepted after a cancel", func(e *evidence) {
			e.say(Entry{Worker: "w1", Job: "cancelled", Verb: Nack}, 10, 70, 200)
		}, "job cancelled: the answer key 18 was accepted 10ms after it was cancelled"},
		{"two live unique jobs", func(e *evidence) {
			e.job("second", func(j *Enqueued) { j.UniqueKey, j.DeadLetter = "k", false })
			e.do("second", "w2", 1000)
		}, "are unique by \"k\", and were both live for"},
		{"an answer that was wrong by itself", func(e *evidence) { e.Broken = []string{"job x was answered 400"} }, "job x was answered 400"},
	} {
		e := goodRun()
		c.do(e)
		if v := Verify(e.Evidence); !slices.ContainsFunc(v.Broken, func(b string) bool { return strings.Contains(b, c.want) }) {
			t.Errorf("%s: found %q", c.name, v.Broken)
		}
	}
}

// Times of the database are compared with those of workers by how far its clock may have been ahead, and no further.
func TestVerifyKnowsThatTheDatabasesClockWasAhead(t *testing.T) {
	t.Parallel()
	ahead := func(from, until int) Clock {
		return Clock{{From: after(from), Until: after(until), Ahead: 500 * time.Millisecond}}
	}
	early := func(e *evidence) { e.Jobs[1].NotBefore = after(880) }
	twoLive := func(e *evidence) { // the first one ended at 1055
		e.job("second", func(j *Enqueued) { j.UniqueKey, j.DeadLetter = "k", false })
		e.do("second", "w2", 1000)
		e.final("unique", func(f *Final) { f.EndedAt = after(1700) })
		e.final("second", func(f *Final) { f.CreatedAt, f.EndedAt = after(1090), after(1900) })
	}
	for name, c := range map[string]struct {
		do     func(*evidence)
		clock  Clock
		broken string
	}{
		"given early":                            {early, nil, "job late was given to w1 780ms before its time"},
		"given early by the clock":               {early, ahead(50, 150), ""},
		"given earlier than the clock was ahead": {func(e *evidence) { e.Jobs[1].NotBefore = after(910) }, ahead(50, 150), "810ms before its time"},
		"given early after the clock was right":  {early, ahead(50, 98), "job late was given to w1 780ms before its time"},
		"while it is not right yet":              {early, Clock{{From: after(99), Ahead: time.Second}}, ""},
		"set between the fetch and its answer":   {early, Clock{{From: after(100), Until: after(100), Ahead: time.Second}}, ""},
		"two live":                               {twoLive, nil, "were both live"},
		"one had ended by the clock":             {twoLive, ahead(1100, 1300), ""},
		"the clock was right when it ended":      {twoLive, ahead(1100, 1150), "were both live"},
	} {
		e := goodRun()
		c.do(e)
		e.Clock = c.clock
		if got := strings.Join(Verify(e.Evidence).Broken, "; "); (got == "") != (c.broken == "") || !strings.Contains(got, c.broken) {
			t.Errorf("%s: found %q, want %q", name, got, c.broken)
		}
	}
}

// A refusal is no finding where nobody can know that the worker still held the job.
func TestARefusalMayBeRight(t *testing.T) {
	t.Parallel()
	const refused = 6 // the answer of w1 about the job that is retried, at 450 ms
	for name, change := range map[string]func(*evidence){
		"another answer may have ended the lease": func(e *evidence) {
			e.say(Entry{Worker: "w1", Job: "retried", Verb: Ack, Lie: OtherName, Name: "w3"}, 0, 420, 0)
		},
		"an answer of long ago may have arrived": func(e *evidence) {
			e.Entries = append([]Entry{{At: after(10), Kind: Asked, Worker: "w1", Name: "w1", Job: "retried", Verb: Nack, Key: "old"}}, e.Entries...)
		},
		"a person may have cancelled it": func(e *evidence) { e.act(Cancel, "retried", 410, 0) },
		"a cancel was being answered":    func(e *evidence) { e.act(Cancel, "retried", 395, 200) },
		"its lease was over": func(e *evidence) {
			for i := range e.Entries {
				if e.Entries[i].Kind == Fetched && e.Entries[i].Job == "retried" {
					e.Entries[i].Length = 350
				}
			}
		},
	} {
		e := goodRun()
		e.answered(refused, 409)
		change(e)
		if v := Verify(e.Evidence); slices.ContainsFunc(v.Broken, func(b string) bool { return strings.Contains(b, "was refused with 409") }) {
			t.Errorf("%s: found %q", name, v.Broken)
		}
	}
}
