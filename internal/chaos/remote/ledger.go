package remote

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Kind is what an entry of the ledger states.
type Kind string

// The kinds of entries.
const (
	Fetched  Kind = "fetched"  // the worker was given a job
	Effect   Kind = "effect"   // it did what the job asks for
	Asked    Kind = "asked"    // it is about to send an answer about a job
	Answered Kind = "answered" // the server replied to it; without this entry the outcome is unknown
)

// Verb is what a worker answers about a job.
type Verb string

// The verbs. HandBack is a nack with requeue.
const (
	Ack      Verb = "ack"
	Nack     Verb = "nack"
	HandBack Verb = "hand-back"
)

// Lie is how an answer of a worker is false.
type Lie string

// The lies. The first three have to be refused. NotDone can't be noticed.
const (
	OtherName    Lie = "under-another-name"
	NotHeld      Lie = "of-a-job-that-it-does-not-hold"
	NeverExisted Lie = "of-a-job-that-never-was"
	NotDone      Lie = "without-the-work"
)

// Entry is one line of the ledger. It is written by a worker, about itself, and never changed.
type Entry struct {
	At       time.Time `json:"at"` // by the ledger
	Kind     Kind      `json:"kind"`
	Worker   string    `json:"worker"` // one goroutine of one process
	Job      string    `json:"job"`
	Lease    string    `json:"lease,omitempty"` // when the attempt started: with the job it names the attempt
	Attempt  int       `json:"attempt,omitempty"`
	Length   int64     `json:"length_ms,omitempty"` // of Fetched: of the lease
	Verb     Verb      `json:"verb,omitempty"`
	Name     string    `json:"name,omitempty"`  // of Asked: under which the worker answers
	Named    bool      `json:"named,omitempty"` // of Asked: the answer names the attempt
	Final    bool      `json:"final,omitempty"` // of a Nack: another attempt would not help
	Lie      Lie       `json:"lie,omitempty"`
	Key      string    `json:"key,omitempty"` // of Asked, and of the Answered that belongs to it
	Sent     time.Time `json:"sent,omitzero"` // of Fetched and Answered: when the request was sent
	Received time.Time `json:"received,omitzero"`
	Status   int       `json:"status,omitempty"`
}

// Ledger keeps what remote workers state. It is safe for concurrent use.
type Ledger struct {
	server *http.Server
	url    string
	ended  chan error

	mu      sync.Mutex
	entries []Entry
	reports []Report
	copy    *json.Encoder
}

// StartLedger serves a ledger on a free port of loopback. Each entry is also written to copy.
func StartLedger(copy io.Writer) (*Ledger, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Ledger{url: "http://" + listener.Addr().String(), copy: json.NewEncoder(copy), ended: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /entries", l.add)
	mux.HandleFunc("GET /recent", l.recent)
	mux.HandleFunc("POST /reports", l.keepReport)
	mux.HandleFunc("GET /others", l.others)
	l.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { l.ended <- l.server.Serve(listener) }()
	return l, nil
}

// URL returns where workers post.
func (l *Ledger) URL() string { return l.url }

// Close ends the server. The entries stay readable.
func (l *Ledger) Close() error {
	err := l.server.Close()
	if served := <-l.ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Entries returns all entries, the oldest first.
func (l *Ledger) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

func (l *Ledger) add(w http.ResponseWriter, r *http.Request) {
	var e Entry
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	e.At = time.Now()
	l.entries = append(l.entries, e)
	err := l.copy.Encode(e)
	l.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// manyRecent is how many jobs a liar chooses from.
const manyRecent = 20

// recent answers with the newest attempts of other workers, for a worker that lies about one.
func (l *Ledger) recent(w http.ResponseWriter, r *http.Request) {
	worker, found := r.URL.Query().Get("worker"), []Entry{}
	l.mu.Lock()
	for i := len(l.entries) - 1; i >= 0 && len(found) < manyRecent; i-- {
		if e := l.entries[i]; e.Kind == Fetched && e.Worker != worker {
			found = append(found, e)
		}
	}
	l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found) // the worker may be gone
}
