package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// scripted is a door that answers by a script and keeps what it was asked.
type scripted struct {
	url string
	mu  sync.Mutex
	got []string
}

func script(t *testing.T, answer func(n int, path string) (int, string)) *scripted {
	t.Helper()
	s := &scripted{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.got = append(s.got, r.Method+" "+r.URL.String()+" "+string(body))
		n := len(s.got)
		s.mu.Unlock()
		status, text := answer(n, r.URL.Path)
		if status == 0 {
			panic(http.ErrAbortHandler) // the connection is cut
		}
		w.WriteHeader(status)
		if _, err := io.WriteString(w, text); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func startLedger(t *testing.T, copy io.Writer) *Ledger {
	t.Helper()
	l, err := StartLedger(copy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestTheLedgerKeepsAndShowsWhatWorkersState(t *testing.T) {
	t.Parallel()
	var kept bytes.Buffer
	l := startLedger(t, &kept)
	c := newClient(l.URL(), time.Minute)
	for i, worker := range []string{"w1", "w2", "w1"} {
		if err := c.post(t.Context(), Entry{Kind: Fetched, Worker: worker, Job: fmt.Sprint(i), Received: noon}); err != nil {
			t.Fatal(err)
		}
	}
	got := l.Entries()
	if len(got) != 3 || got[2].Job != "2" || got[2].At.IsZero() || !got[2].Received.Equal(noon) || bytes.Count(kept.Bytes(), []byte("\n")) != 3 {
		t.Errorf("%+v, %s", got, kept.String())
	}
	var others []Entry
	if r := c.send(t.Context(), http.MethodGet, "/recent?worker=w1", nil); json.Unmarshal(r.body, &others) != nil || len(others) != 1 || others[0].Worker != "w2" {
		t.Errorf("%+v", others)
	}
	if r := c.send(t.Context(), http.MethodPost, "/entries", "no entry"); r.ok() {
		t.Errorf("it took %s", r)
	}
}

// Each manner leaves in the ledger what the worker asked and was answered, and lies as lies.
func TestEveryMannerIsInTheLedger(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(*attempt) error
		want []string
	}{
		"honestly":         {func(a *attempt) error { return a.honestly(t.Context()) }, []string{"effect", "asked ack", "answered ack"}},
		"slowly":           {func(a *attempt) error { return a.slowly(t.Context()) }, []string{"effect", "asked ack", "answered ack"}},
		"twice":            {func(a *attempt) error { return a.twice(t.Context()) }, []string{"effect", "asked ack", "answered ack", "asked ack", "answered ack"}},
		"failing":          {func(a *attempt) error { return a.failing(t.Context()) }, []string{"asked nack", "answered nack"}},
		"finallyFailing":   {func(a *attempt) error { return a.finallyFailing(t.Context()) }, []string{"asked nack final", "answered nack final"}},
		"handingBack":      {func(a *attempt) error { return a.handingBack(t.Context()) }, []string{"asked hand-back", "answered hand-back"}},
		"silently":         {func(a *attempt) error { return a.silently(t.Context()) }, []string{"effect"}},
		"underAnotherName": {func(a *attempt) error { return a.underAnotherName(t.Context()) }, []string{"effect", "asked ack under-another-name", "answered ack under-another-name"}},
		"ofAnother":        {func(a *attempt) error { return a.ofAnother(t.Context()) }, []string{"asked ack of-a-job-that-it-does-not-hold", "answered ack of-a-job-that-it-does-not-hold", "effect", "asked ack", "answered ack"}},
		"ofNone":           {func(a *attempt) error { return a.ofNone(t.Context()) }, []string{"asked ack of-a-job-that-never-was", "answered ack of-a-job-that-never-was", "effect", "asked ack", "answered ack"}},
		"withoutWork":      {func(a *attempt) error { return a.withoutWork(t.Context()) }, []string{"asked ack without-the-work", "answered ack without-the-work"}},
	} {
		l := startLedger(t, io.Discard)
		door := script(t, func(int, string) (int, string) { return http.StatusOK, "{}" })
		p := &worker{name: "w1", rng: rand.New(rand.NewPCG(1, 1)), door: newClient(door.url, time.Minute), ledger: newClient(l.URL(), time.Minute)}
		if err := p.ledger.post(t.Context(), Entry{Kind: Fetched, Worker: "w2", Job: "other"}); err != nil {
			t.Fatal(err)
		}
		if err := c.make(&attempt{worker: p, job: job{ID: "j", Type: WorkType, StartedAt: "now", Attempt: 1}, length: time.Millisecond}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for _, e := range l.Entries()[1:] {
			text := strings.Join(strings.Fields(fmt.Sprint(e.Kind, " ", e.Verb, " ", e.Lie)), " ")
			if e.Final {
				text += " final"
			}
			got = append(got, text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// An answer that does not come leaves its question alone in the ledger.
func TestAnAnswerThatIsLostIsUnknown(t *testing.T) {
	t.Parallel()
	l := startLedger(t, io.Discard)
	door := script(t, func(int, string) (int, string) { return 0, "" })
	p := &worker{name: "w1", rng: rand.New(rand.NewPCG(1, 1)), door: newClient(door.url, time.Minute), ledger: newClient(l.URL(), time.Minute)}
	if err := (&attempt{worker: p, job: job{ID: "j", Type: WorkType}}).ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.Entries(); len(got) != 1 || got[0].Kind != Asked {
		t.Errorf("%+v", got)
	}
}

// A caller without an answer enqueues the same job again, until it knows.
func TestACallerAsksUntilItKnows(t *testing.T) {
	t.Parallel()
	id := func(s *scripted) string {
		var sent struct{ ID string }
		_, body, _ := strings.Cut(s.got[0], "/jobs ")
		_ = json.Unmarshal([]byte(body), &sent)
		return sent.ID
	}
	for name, c := range map[string]struct {
		answers  []int
		own      bool // the refusal names the job itself
		accepted bool
		broken   bool
	}{
		"at once":                 {[]int{201}, false, true, false},
		"after failures":          {[]int{503, 0, 429, 500, 201}, false, true, false},
		"it was before":           {[]int{0, 409}, true, true, false},
		"it never was":            {[]int{409}, true, false, true},
		"refused for no reason":   {[]int{400}, false, false, true},
		"a duplicate of no other": {[]int{409}, false, false, true},
	} {
		var s *scripted
		s = script(t, func(n int, _ string) (int, string) {
			if c.own {
				return c.answers[n-1], fmt.Sprintf(`{"error":{"details":{"existing_job_id":%q}}}`, id(s))
			}
			return c.answers[n-1], "{}"
		})
		l := NewLoad(s.url, 1)
		l.enqueue(t.Context(), rand.New(rand.NewPCG(2, 2)))
		jobs, _, broken := l.read()
		if len(jobs) != 1 || jobs[0].Accepted != c.accepted || len(broken) > 0 != c.broken || len(s.got) != len(c.answers) {
			t.Errorf("%s: %+v, broken %q, %d requests", name, jobs, broken, len(s.got))
		}
	}
}

// The seed alone decides what is enqueued, but for ids and times.
func TestTheSeedDecidesTheJobs(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	for n := range uint64(300) {
		a, pending, _ := draw(rand.New(rand.NewPCG(5, n)))
		b, again, _ := draw(rand.New(rand.NewPCG(5, n)))
		if a.Queue != b.Queue || a.UniqueKey != b.UniqueKey || a.DeadLetter != b.DeadLetter || a.Replaces != b.Replaces || pending != again || a.NotBefore.IsZero() != b.NotBefore.IsZero() {
			t.Fatalf("%+v and %+v", a, b)
		}
		kinds[fmt.Sprint(a.UniqueKey != "", a.Replaces, a.DeadLetter, pending, !a.NotBefore.IsZero())] = true
	}
	if len(kinds) != 8 {
		t.Errorf("%d kinds of jobs", len(kinds))
	}
}

// A payer tells the ledger what it was given and what it answers, with the reply, and lies only after its payment.
func TestAPayerKeepsWhatItTells(t *testing.T) {
	t.Parallel()
	l := startLedger(t, io.Discard)
	pay := script(t, func(int, string) (int, string) {
		return http.StatusOK, `{"moved":{"minor":1000,"currency":"EUR"},"reference":"r"}`
	})
	door := script(t, func(int, string) (int, string) {
		return http.StatusConflict, `{"error":{"code":"conflict","details":{"rule":"not_the_holder"}}}`
	})
	p := &payer{name: "w", principal: "service:p", misreporting: "lies", rng: rand.New(rand.NewPCG(1, 1)), door: newClient(door.url, time.Second), pay: newClient(pay.url, time.Second), ledger: newClient(l.URL(), time.Minute)}
	o := order{ID: "o", Args: []json.RawMessage{json.RawMessage(`{"amount":{"minor":1000,"currency":"EUR"}}`)}}
	o.Meta.OperationKey, o.Meta.Attempt, o.Meta.NotAfter = "key", 1, time.Now().Add(time.Hour)
	if err := p.honestly(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	want := Report{Principal: "service:p", Worker: "w", Order: "o", Key: "key", Attempt: 1, Class: Executed, Moved: 1000, Reference: "r"}
	replied := want
	replied.Status, replied.Rule = http.StatusConflict, "not_the_holder"
	if got := l.Reports(); len(got) != 2 || got[0] != want || got[1] != replied || !replied.Recorded() {
		t.Errorf("%+v", got)
	}
	// An order of nobody else is answered for by nobody else.
	if err := p.meddle(t.Context()); err != nil || len(l.Reports()) != 2 {
		t.Errorf("%v, %+v", err, l.Reports())
	}
	for _, principal := range []string{"service:p", "service:other"} {
		if err := p.post(t.Context(), Report{Given: true, Principal: principal, Worker: "x", Order: principal, Key: "k", Attempt: 2}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.meddle(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := l.Reports()
	if last := got[len(got)-1]; !last.OfOther || !last.False || last.Order != "service:other" || last.Attempt != 2 || last.Principal != "service:p" || last.Recorded() {
		t.Errorf("%+v", last)
	}
	for range 40 {
		if err := p.contradicting(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	invented, other, lower := 0, 0, 0
	for _, reported := range l.Reports()[len(got):] {
		switch {
		case reported.Class == Executed && reported.Reference == "invented-o" && reported.Moved == 1000:
			invented++
		case reported.Class == Executed && reported.Reference == "r-other" && reported.False:
			other++
		case reported.Class == Executed && reported.Moved == 999 && reported.False:
			lower++
		}
	}
	if invented == 0 || other == 0 || lower == 0 {
		t.Errorf("of 40: %d invented, %d under another reference, %d of a lower sum", invented, other, lower)
	}
}
