package conformance_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRUN_01_Create(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		a := h.want(t, http.StatusCreated, "POST", "/v1/runs", adjudication(pays))
		run := a.object.text("runId")
		if !slices.Contains([]string{"pending", "running"}, a.object.text("status")) {
			t.Errorf("%s", a.raw)
		}
		for name, path := range map[string]string{"eventsUrl": "/v1/runs/" + run + "/events", "statusUrl": "/v1/runs/" + run} {
			if got := a.object.text(name); got != h.url+path {
				t.Errorf("%s is %s, want %s", name, got, h.url+path)
			}
		}
		h.log(t, run)
		got := h.want(t, http.StatusOK, "GET", "/v1/runs/"+run, "").object
		if got.text("runId") != run || got.text("workflowId") != "settlement" || got.text("status") != "completed" || got["error"] != nil {
			t.Errorf("%v", got)
		}
		for _, at := range []string{"startedAt", "completedAt"} {
			if _, err := time.Parse(time.RFC3339, got.text(at)); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestRUN_02_BadBodiesAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		for _, body := range []string{
			`{`, `[]`, `null`, `{}`, `{"inputs":{}}`, `{"workflowId":""}`, `{"workflowId":7}`, `{"workflowId":"no-such-workflow"}`, `{"workflowId":"settlement","inputs":[]}`,
			`{"workflowId":"settlement"}`, `{"workflowId":"settlement","inputs":{"outcome":"release"}}`, `{"workflowId":"settlement","workflowId":"x"}`,
			strings.Replace(adjudication(pays), `"minor":12500`, `"minor":1e400`, 1), strings.Replace(adjudication(pays), `"minor":12500`, `"minor":9007199254740993`, 1),
			strings.Replace(adjudication(pays), `"release"`, `"both"`, 1), strings.Replace(adjudication(pays), `"adj_`, `"\u0000`, 1), strings.Repeat("[", 10_000),
			strings.Replace(adjudication(pays), `"inputs"`, `"callbackUrl":"http://127.0.0.1:1/","inputs"`, 1), strings.Replace(adjudication(pays), `"inputs"`, `"tenantId":"another","inputs"`, 1),
			strings.Replace(adjudication(pays), `"simulate":"ok"`, `"payload":{"password":"hunter2-and-more"}`, 1),
		} {
			a := h.refused(t, http.StatusBadRequest, "validation_error", "POST", "/v1/runs", body)
			if strings.Contains(a.raw, "hunter2") {
				t.Errorf("the refusal repeats a secret: %s", a.raw)
			}
		}
	})
}

func TestRUN_03_WhatIsKnownIsNotCreatedAgain(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		body := adjudication(pays)
		run := h.create(t, body)
		h.log(t, run)
		a := h.refused(t, http.StatusConflict, "already_executed", "POST", "/v1/runs", body)
		if a.object.object("details").text("runId") != run {
			t.Errorf("%s", a.raw)
		}
		body = adjudication(fails)
		run = h.create(t, body)
		h.log(t, run)
		if a := h.refused(t, http.StatusConflict, "dead_lettered", "POST", "/v1/runs", body); a.object.object("details").text("runId") != run {
			t.Errorf("%s", a.raw)
		}
	})
}

func TestRUN_04_ADeadRunIsFailed(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		run, _ := h.dead(t)
		got := h.want(t, http.StatusOK, "GET", "/v1/runs/"+run, "").object
		failure := got.object("error")
		if got.text("status") != "failed" || failure.text("code") == "" || failure.text("message") == "" {
			t.Errorf("%v", got)
		}
		for member := range failure {
			if !slices.Contains([]string{"code", "message", "details"}, member) {
				t.Errorf("error has %s", member)
			}
		}
	})
}

func TestRUN_05_Cancel(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		run := h.completed(t)
		a := h.refused(t, http.StatusConflict, "run_terminal", "POST", "/v1/runs/"+run+"/cancel", `{"reason":"too late"}`)
		if a.object.object("details").text("runStatus") != "completed" {
			t.Errorf("%s", a.raw)
		}
		h.refused(t, http.StatusBadRequest, "validation_error", "POST", "/v1/runs/"+run+"/cancel", `{"reason":7}`)
		h.refused(t, http.StatusBadRequest, "validation_error", "POST", "/v1/runs/"+run+"/cancel", `{"because":"x"}`)
	})
}
