package conformance_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
)

const replayed = "openwop-Idempotent-Replay"

// key returns an Idempotency-Key that no other test has.
func key() string { return fmt.Sprintf("key-%d", serial.Add(1)) }

func TestIDEM_01_AKeyIsForOneRequest(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		k, body := key(), adjudication(pays)
		first := h.want(t, http.StatusCreated, "POST", "/v1/runs", body, "Idempotency-Key", k)
		if v := first.header.Get(replayed); v != "" && v != "false" {
			t.Errorf("the first answer says %s: %s", replayed, v)
		}
		again := h.want(t, http.StatusCreated, "POST", "/v1/runs", body, "Idempotency-Key", k)
		if again.raw != first.raw || again.header.Get(replayed) != "true" {
			t.Errorf("%s %s", again.raw, again.header.Get(replayed))
		}
		a := h.refused(t, http.StatusConflict, "idempotency_key_mismatch", "POST", "/v1/runs", adjudication(pays), "Idempotency-Key", k)
		if a.object.object("details")["runId"] != nil {
			t.Errorf("%s", a.raw)
		}
	})
}

func TestIDEM_02_OneKeyOneRunAlsoAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		k, body := key(), adjudication(pays)
		runs := make([]string, 10)
		var all sync.WaitGroup
		for i := range runs {
			all.Go(func() {
				a := h.ask(t, "POST", "/v1/runs", body, "Idempotency-Key", k)
				switch {
				case a.status == http.StatusCreated:
					runs[i] = a.object.text("runId")
				case a.status != http.StatusConflict || a.code() != "idempotency_in_flight":
					t.Errorf("%d %s", a.status, a.raw)
				}
			})
		}
		all.Wait()
		distinct := map[string]bool{}
		for _, r := range runs {
			if r != "" {
				distinct[r] = true
			}
		}
		if len(distinct) != 1 {
			t.Errorf("one key made %v", distinct)
		}
	})
}

func TestIDEM_03_FinalRefusalsAreKept(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		run := h.completed(t)
		k := key()
		path, body := "/v1/runs/"+run+":fork", `{"mode":"branch","fromSeq":0}`
		h.refused(t, http.StatusConflict, "already_executed", "POST", path, body, "Idempotency-Key", k)
		if a := h.refused(t, http.StatusConflict, "already_executed", "POST", path, body, "Idempotency-Key", k); a.header.Get(replayed) != "true" {
			t.Errorf("%v", a.header)
		}
		k = key()
		h.refused(t, http.StatusBadRequest, "validation_error", "POST", "/v1/runs", `{"workflowId":"nothing"}`, "Idempotency-Key", k)
		h.want(t, http.StatusCreated, "POST", "/v1/runs", adjudication(pays), "Idempotency-Key", k)
	})
}

// A key of one endpoint says nothing of another's, and the source of a fork is part of its request.
func TestIDEM_04_KeysOfEndpoints(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		k := key()
		h.want(t, http.StatusCreated, "POST", "/v1/runs", adjudication(pays), "Idempotency-Key", k)
		one, _ := h.dead(t)
		two, _ := h.dead(t)
		h.want(t, http.StatusCreated, "POST", "/v1/runs/"+one+":fork", `{"mode":"branch","fromSeq":0}`, "Idempotency-Key", k)
		h.refused(t, http.StatusConflict, "idempotency_key_mismatch", "POST", "/v1/runs/"+two+":fork", `{"mode":"branch","fromSeq":0}`, "Idempotency-Key", k)
		for _, bad := range []string{"a b", "a/b", "ä"} {
			h.refused(t, http.StatusBadRequest, "validation_error", "POST", "/v1/runs", adjudication(pays), "Idempotency-Key", bad)
		}
		h.want(t, http.StatusOK, "GET", "/v1/runs/"+one, "", "Idempotency-Key", k)
	})
}
