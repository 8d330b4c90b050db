package conformance_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// RFC 0053, duty 1: the run is kept, says that it was dead-lettered, and is failed.
func TestDL_01_TheEventAndItsOrder(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		run, log := h.dead(t)
		if all := types(log); !strings.HasSuffix(all, "node.failed run.dead_lettered run.failed") || strings.Count(all, "run.dead_lettered") != 1 {
			t.Fatal(all)
		}
		p := log[len(log)-2].object("payload")
		for member := range p {
			if !slices.Contains([]string{"runId", "nodeId", "reason", "attempts"}, member) {
				t.Errorf("the payload has %s", member)
			}
		}
		if p.text("runId") != run || p.text("reason") == "" || p.integer(t, "attempts") < 1 {
			t.Errorf("%v", p)
		}
		for _, e := range h.log(t, h.completed(t)) {
			if e.text("type") == "run.dead_lettered" {
				t.Error("a run that completed was dead-lettered")
			}
		}
	})
}

// Duty 2: it can be forked, with the key under which it pays, so that nothing is paid twice.
func TestDL_02_ForksOfADeadRun(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		run := h.create(t, adjudication(paysWhenFork))
		before := h.log(t, run)
		a := h.want(t, http.StatusCreated, "POST", "/v1/runs/"+run+":fork", `{"mode":"branch","fromSeq":0,"runOptionsOverlay":{}}`)
		fork := a.object.text("runId")
		if fork == run || a.object.text("sourceRunId") != run || a.object.integer(t, "fromSeq") != 0 || a.object.text("mode") != "branch" || a.object.text("status") != "pending" || a.object.text("eventsUrl") != h.url+"/v1/runs/"+fork+"/events" {
			t.Errorf("%s", a.raw)
		}
		if log := h.log(t, fork); types(log) != "run.started node.started node.completed run.completed" {
			t.Errorf("the fork: %s", types(log))
		}
		if got := h.want(t, http.StatusOK, "GET", "/v1/runs/"+fork, "").object; got.text("sourceRunId") != run {
			t.Errorf("%v", got)
		}
		if after := h.log(t, run); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("the log of the source changed: %v", after)
		}
		for _, source := range []string{run, fork} {
			if a := h.refused(t, http.StatusConflict, "already_executed", "POST", "/v1/runs/"+source+":fork", `{"mode":"branch","fromSeq":0}`); a.object.object("details").text("runId") != fork {
				t.Errorf("%s", a.raw)
			}
		}
	})
}

func TestDL_03_ADeadForkIsForkedByTheIdOfItsSource(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		run, _ := h.dead(t)
		seen := map[string]bool{run: true}
		for range 2 {
			a := h.want(t, http.StatusCreated, "POST", "/v1/runs/"+run+":fork", `{"mode":"branch","fromSeq":0}`)
			fork := a.object.text("runId")
			if seen[fork] || a.object.text("sourceRunId") != run {
				t.Errorf("%s", a.raw)
			}
			seen[fork] = true
			h.log(t, fork)
		}
	})
}

func TestFORK_01_BadBodiesAndRefusals(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		run, log := h.dead(t)
		path := "/v1/runs/" + run + ":fork"
		for _, body := range []string{
			``, `{}`, `[]`, `{"mode":"rewind","fromSeq":0}`, `{"mode":"branch"}`, `{"mode":"branch","fromSeq":-1}`, `{"mode":"branch","fromSeq":0.5}`, `{"mode":"branch","fromSeq":"0"}`,
			`{"mode":"branch","fromSeq":0,"amount":1}`, `{"mode":"replay","runOptionsOverlay":{"configurable":{"amount":1}}}`, `{"mode":"branch","fromSeq":0,"runOptionsOverlay":{"configurable":{"outcome":"refund"}}}`,
			`{"mode":"branch","fromSeq":0,"fromSeq":1}`,
		} {
			h.refused(t, http.StatusBadRequest, "validation_error", "POST", path, body)
		}
		h.refused(t, http.StatusUnprocessableEntity, "fork_point_invalid", "POST", path, fmt.Sprintf(`{"mode":"branch","fromSeq":%d}`, len(log)))
		h.refused(t, http.StatusNotImplemented, "fork_unsupported_mode", "POST", path, `{"mode":"replay"}`)
		h.refused(t, http.StatusNotFound, "not_found", "POST", "/v1/runs/01934b2e-7c00-7000-8000-00000000000a:fork", `{"mode":"replay"}`)
		h.want(t, http.StatusCreated, "POST", path, fmt.Sprintf(`{"mode":"branch","fromSeq":%d}`, len(log)-1))
	})
}

// Duty 3: past its days the run is not found, like one that never existed.
func TestDL_04_TheWindow(t *testing.T) {
	for _, h := range hosts {
		if !h.clock {
			continue
		}
		// Time passes for all tests of the host, so this one is not parallel to them.
		t.Run(h.name, func(t *testing.T) {
			run, _ := h.dead(t)
			retention := h.discovery(t).object("deadLetter").integer(t, "retentionDays")
			h.want(t, http.StatusOK, "POST", "/test/clock", fmt.Sprintf(`{"advance":"PT%dM"}`, retention*24*60-2))
			fork := h.want(t, http.StatusCreated, "POST", "/v1/runs/"+run+":fork", `{"mode":"branch","fromSeq":0}`).object.text("runId")
			h.log(t, fork)
			h.want(t, http.StatusOK, "POST", "/test/clock", `{"advance":"PT3M"}`)
			for _, request := range [][3]string{{"GET", "", ""}, {"GET", "/events", ""}, {"GET", "/events/poll", ""}, {"POST", ":fork", `{"mode":"branch","fromSeq":0}`}, {"POST", "/cancel", ""}} {
				gone := h.refused(t, http.StatusNotFound, "not_found", request[0], "/v1/runs/"+run+request[1], request[2])
				never := h.refused(t, http.StatusNotFound, "not_found", request[0], "/v1/runs/01934b2e-7c00-7000-8000-00000000000a"+request[1], request[2])
				if gone.raw != never.raw {
					t.Errorf("%s: %s, of one that never existed %s", request[1], gone.raw, never.raw)
				}
			}
			if got := h.want(t, http.StatusOK, "GET", "/v1/runs/"+fork, "").object; got.text("status") != "failed" {
				t.Errorf("the fork has days of its own: %v", got)
			}
		})
	}
}

func TestSEAM_01_Exhaust(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		const path = "/v1/host/sample/deadletter/exhaust"
		if given := h.name == "given"; given && h.ask(t, "POST", path, `{}`).status == http.StatusBadRequest {
			t.Log("the given host has the seam")
		} else if !h.clock {
			h.refused(t, http.StatusNotFound, "not_found", "POST", path, `{"scenario":"exhaust-retries"}`)
			return
		}
		for _, scenario := range []string{"exhaust-retries", "fork-after-dead-letter"} {
			a := h.want(t, http.StatusOK, "POST", path, `{"scenario":"`+scenario+`"}`)
			e := a.object.object("event")
			run := a.object.text("runId")
			if e.text("type") != "run.dead_lettered" || e.object("payload").integer(t, "attempts") != 3 || a.object["forkEligible"] != true || e.text("runId") != run {
				t.Errorf("%s", a.raw)
			}
			log := h.log(t, run) // it is a real run
			if stored := log[e.integer(t, "sequence")]; fmt.Sprint(stored) != fmt.Sprint(e) {
				t.Errorf("the log has %v, the seam answered %v", stored, e)
			}
			if types(log) != "run.started node.started node.retried node.started node.retried node.started node.failed run.dead_lettered run.failed" {
				t.Error(types(log))
			}
			h.want(t, http.StatusCreated, "POST", "/v1/runs/"+run+":fork", `{"mode":"branch","fromSeq":0}`)
		}
		for _, bad := range []string{``, `{}`, `x`, `{"scenario":"other"}`} {
			h.refused(t, http.StatusBadRequest, "validation_error", "POST", path, bad)
		}
	})
}

func TestFIX_01_ConformanceFailure(t *testing.T) {
	withFixture(t, "conformance-failure", func(t *testing.T, h *host) {
		run := h.create(t, `{"workflowId":"conformance-failure"}`)
		log := h.log(t, run)
		if types(log) != "run.started node.started node.failed run.dead_lettered run.failed" {
			t.Fatal(types(log))
		}
		if log[1].object("payload").text("typeId") != "core.fail" || log[3].object("payload").integer(t, "attempts") != 1 {
			t.Errorf("%v", log)
		}
		a := h.want(t, http.StatusCreated, "POST", "/v1/runs/"+run+":fork", `{"mode":"branch","fromSeq":0}`)
		if again := h.log(t, a.object.text("runId")); types(again) != types(log) {
			t.Error(types(again))
		}
	})
}

func TestFIX_02_WorkflowsThatComplete(t *testing.T) {
	for _, workflow := range []string{"conformance-noop", "conformance-idempotent", "conformance-identity"} {
		t.Run(workflow, func(t *testing.T) {
			withFixture(t, workflow, func(t *testing.T, h *host) {
				run := h.create(t, `{"workflowId":"`+workflow+`","inputs":{"nonce":"n-1","payload":{"a":[1,"x",null]}}}`)
				if log := h.log(t, run); types(log) != "run.started node.started node.completed run.completed" {
					t.Error(types(log))
				}
				got := h.want(t, http.StatusOK, "GET", "/v1/runs/"+run, "").object
				if workflow == "conformance-identity" && fmt.Sprint(got.object("variables")["payload"]) != "map[a:[1 x <nil>]]" {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

func TestFIX_03_DelayAndCancel(t *testing.T) {
	withFixture(t, "conformance-delay", func(t *testing.T, h *host) {
		run := h.create(t, `{"workflowId":"conformance-delay","inputs":{"delayMs":300}}`)
		log := h.log(t, run)
		started, err := time.Parse(time.RFC3339, log[1].text("timestamp"))
		ended, err2 := time.Parse(time.RFC3339, log[len(log)-1].text("timestamp"))
		if err != nil || err2 != nil || types(log) != "run.started node.started node.completed run.completed" || ended.Sub(started) < 290*time.Millisecond {
			t.Errorf("%s after %s", types(log), ended.Sub(started))
		}
	})
	t.Run("cancel", func(t *testing.T) {
		withFixture(t, "conformance-cancellable", func(t *testing.T, h *host) {
			run := h.create(t, `{"workflowId":"conformance-cancellable"}`)
			h.want(t, http.StatusOK, "GET", "/v1/runs/"+run+"/events/poll?lastSequence=0", "")
			a := h.refused(t, http.StatusConflict, "run_already_active", "POST", "/v1/runs/"+run+":fork", `{"mode":"branch","fromSeq":0}`)
			if a.object.object("details").text("runId") != run {
				t.Errorf("%s", a.raw)
			}
			if got := h.want(t, http.StatusOK, "POST", "/v1/runs/"+run+"/cancel", `{"reason":"sent in error"}`).object.text("status"); got != "cancelling" && got != "cancelled" {
				t.Errorf("status %s", got)
			}
			log := h.log(t, run)
			last := log[len(log)-1]
			if last.text("type") != "run.cancelled" || !strings.Contains(last.object("payload").text("reason"), "sent in error") {
				t.Errorf("%v", last)
			}
			if got := h.want(t, http.StatusOK, "GET", "/v1/runs/"+run, "").object.text("status"); got != "cancelled" {
				t.Errorf("status %s", got)
			}
			if got := h.want(t, http.StatusOK, "POST", "/v1/runs/"+run+"/cancel", "").object.text("status"); got != "cancelled" {
				t.Errorf("a second cancel: %s", got)
			}
		})
	})
}
