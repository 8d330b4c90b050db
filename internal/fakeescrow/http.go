package fakeescrow

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"strconv"
	"time"
)

const maxRequest = 1 << 20

// pollWhole is how often a call that waits for the whole looks for it.
const pollWhole = 5 * time.Millisecond

func (s *Service) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST /v1/executions", s.execute)
	m.HandleFunc("GET /v1/executions/{key}", s.lookup)
	return m
}

func (s *Service) execute(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	if !validKey(key) {
		writeProblem(w, http.StatusBadRequest, "bad_idempotency_key", "Idempotency-Key is not 64 hexadecimal digits")
		return
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		writeProblem(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	req, err := parseRequest(raw)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	by := Caller{Worker: r.Header.Get("Chaos-Worker"), Attempt: r.Header.Get("Chaos-Attempt")}
	d := s.ledger.call(key, raw, req, by, s.config.Now())
	switch d.mode {
	case answerNever:
		s.wait(r, s.config.Hang)
		panic(http.ErrAbortHandler)
	case answerDrop:
		panic(http.ErrAbortHandler) // net/http then ends the connection without an answer
	case answerLate:
		s.wait(r, s.config.Late)
	case answerWhole:
		for whole := false; !whole; s.wait(r, pollWhole) {
			if d.effect, whole = s.ledger.whole(key, s.config.Now()); r.Context().Err() != nil {
				panic(http.ErrAbortHandler)
			}
		}
	}
	s.ledger.noteAnswered(key, d.call, s.config.Now())
	if d.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.retryAfter.Seconds())))
	}
	if d.refusal != "" {
		writeProblem(w, d.status, d.refusal, d.detail)
		return
	}
	if d.status == http.StatusAccepted {
		writeState(w, d.status, key, d.result)
		return
	}
	writeEffect(w, d.effect, d.result)
}

func (s *Service) lookup(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	if !validKey(key) {
		writeProblem(w, http.StatusBadRequest, "bad_operation_key", "the operation key is not 64 hexadecimal digits")
		return
	}
	switch status, effect := s.ledger.lookUp(key, s.config.Now()); status {
	case http.StatusServiceUnavailable:
		writeProblem(w, status, "unavailable", "the escrow service can't say what became of it")
	case http.StatusOK:
		writeEffect(w, effect, "executed")
	case http.StatusAccepted:
		writeState(w, status, key, statusAccepted)
	default:
		writeState(w, status, key, "not_executed")
	}
}

// wait blocks for d; when d is 0, until the client or the service is gone.
func (s *Service) wait(r *http.Request, d time.Duration) {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
	case <-r.Context().Done():
	}
}

func writeEffect(w http.ResponseWriter, e Effect, status string) {
	writeJSON(w, http.StatusOK, map[string]any{
		"operation_key": e.OperationKey,
		"status":        status,
		"moved":         e.Moved,
		"reference":     e.Reference,
	})
}

// statusAccepted is the status of a call that has not ended.
const statusAccepted = "accepted"

func writeState(w http.ResponseWriter, status int, key, state string) {
	writeJSON(w, status, map[string]string{"operation_key": key, "status": state})
}

func writeProblem(w http.ResponseWriter, status int, name, detail string) {
	writeJSON(w, status, map[string]string{"error": name, "detail": detail})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		log.Printf("fakeescrow: %v", err)
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error here means that the client is gone: the ledger has the call anyway.
	_, _ = w.Write(raw)
}

func validKey(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 64
}
