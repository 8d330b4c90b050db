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

func (s *Service) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST /v1/executions", s.execute)
	m.HandleFunc("GET /v1/executions/{key}", s.lookup)
	return m
}

func (s *Service) execute(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	if !validKey(key) {
		refuse(w, http.StatusBadRequest, "bad_idempotency_key", "Idempotency-Key is not 64 hexadecimal digits")
		return
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	req, err := parseRequest(raw)
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	by := Caller{Worker: r.Header.Get("Chaos-Worker"), Attempt: r.Header.Get("Chaos-Attempt")}
	d := s.ledger.call(key, raw, req, by, s.config.Now())
	switch d.hold {
	case holdForever:
		s.wait(r, s.config.Hang)
		panic(http.ErrAbortHandler)
	case holdDrop:
		panic(http.ErrAbortHandler) // net/http then ends the connection without an answer
	case holdLate:
		s.wait(r, s.config.Late)
	}
	s.ledger.answered(key, d.call, s.config.Now())
	if d.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.retryAfter.Seconds())))
	}
	if d.refusal != "" {
		refuse(w, d.status, d.refusal, d.detail)
		return
	}
	tell(w, d.effect, d.told)
}

func (s *Service) lookup(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	if !validKey(key) {
		refuse(w, http.StatusBadRequest, "bad_operation_key", "the operation key is not 64 hexadecimal digits")
		return
	}
	effect, paid, dark := s.ledger.lookUp(key, s.config.Now())
	switch {
	case dark:
		refuse(w, http.StatusServiceUnavailable, "unavailable", "the escrow service can't say what became of it")
	case paid:
		tell(w, effect, "executed")
	default:
		answer(w, http.StatusNotFound, map[string]string{"operation_key": key, "status": "not_executed"})
	}
}

// wait holds a call for d, or while the client and the service are there when d is 0.
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

func tell(w http.ResponseWriter, e Effect, status string) {
	answer(w, http.StatusOK, map[string]any{
		"operation_key": e.OperationKey,
		"status":        status,
		"moved":         e.Moved,
		"reference":     e.Reference,
	})
}

func refuse(w http.ResponseWriter, status int, name, detail string) {
	answer(w, status, map[string]string{"error": name, "detail": detail})
}

func answer(w http.ResponseWriter, status int, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		log.Printf("fakeescrow: %v", err)
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error here is a client that went away: the ledger has the call anyway.
	_, _ = w.Write(raw)
}

func validKey(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 64
}
