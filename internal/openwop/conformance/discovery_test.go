package conformance_test

import (
	"encoding/json"
	"net/http"
	"testing"
)

// The advertisement stands at the root and nowhere else, and has no members but its two.
func TestDISC_01_TheDocument(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		d := h.discovery(t)
		if v := d.text("protocolVersion"); len(v) < 2 || v[:2] != "1." {
			t.Errorf("protocolVersion %q", v)
		}
		if _, is := d["supportedEnvelopes"].([]any); !is {
			t.Errorf("supportedEnvelopes %v", d["supportedEnvelopes"])
		}
		if _, is := d["schemaVersions"].(map[string]any); !is {
			t.Errorf("schemaVersions %v", d["schemaVersions"])
		}
		for _, limit := range []string{"clarificationRounds", "schemaRounds", "envelopesPerTurn"} {
			if d.object("limits").integer(t, limit) < 0 {
				t.Error(limit)
			}
		}
		letter := d.object("deadLetter")
		if letter["supported"] != true || letter.integer(t, "retentionDays") < 1 || len(letter) != 2 {
			t.Errorf("deadLetter %v", letter)
		}
		if nested := d.object("capabilities"); nested["deadLetter"] != nil || d["host.deadLetter"] != nil || d["host"] != nil || d["production"] != nil {
			t.Errorf("%v", d)
		}
		modes, _ := d.object("replay")["modes"].([]any)
		if d.object("replay")["supported"] != true || len(modes) != 1 || modes[0] != "branch" {
			t.Errorf("replay %v", d.object("replay"))
		}
		seen := map[string]bool{}
		for _, f := range h.fixturesOf(t) {
			if f == "" || seen[f] {
				t.Errorf("fixtures %v", d["fixtures"])
			}
			seen[f] = true
		}
	})
}

func TestDISC_02_ItNeedsNoKeyAndCanBeKept(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		for _, path := range []string{"/.well-known/openwop", "/v1/openapi.json"} {
			for _, key := range []string{"", "Bearer nonsense"} {
				a := h.want(t, http.StatusOK, "GET", path, "", "Authorization", key)
				if a.header.Get("Cache-Control") == "" {
					t.Errorf("%s has no Cache-Control", path)
				}
				if tag := a.header.Get("ETag"); tag != "" {
					h.want(t, http.StatusNotModified, "GET", path, "", "Authorization", key, "If-None-Match", tag)
				}
			}
		}
		if v := h.want(t, http.StatusOK, "GET", "/v1/openapi.json", "").object.text("openapi"); len(v) < 3 || v[:3] != "3.1" {
			t.Errorf("openapi %q", v)
		}
	})
}

func TestDISC_03_PathsWithoutAVersion(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		h.refused(t, http.StatusBadRequest, "validation_error", "GET", "/runs/x", "")
		h.refused(t, http.StatusBadRequest, "validation_error", "POST", "/runs", "{}")
	})
}

// Each advertised workflow is really served, with a definition that has what its schema requires.
func TestWF_01_Workflows(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		for _, id := range append(h.fixturesOf(t), "settlement") {
			w := h.want(t, http.StatusOK, "GET", "/v1/workflows/"+id, "").object
			for _, member := range []string{"id", "name", "version"} {
				if w.text(member) == "" {
					t.Errorf("%s: %s %v", id, member, w[member])
				}
			}
			for _, member := range []string{"nodes", "edges", "triggers", "variables"} {
				if _, is := w[member].([]any); !is {
					t.Errorf("%s: %s %v", id, member, w[member])
				}
			}
			for _, member := range []string{"metadata", "settings"} {
				if _, is := w[member].(map[string]any); !is {
					t.Errorf("%s: %s %v", id, member, w[member])
				}
			}
			nodes, _ := w["nodes"].([]any)
			if len(nodes) == 0 || object(nodes[0].(map[string]any)).text("typeId") == "" {
				t.Errorf("%s: nodes %v", id, nodes)
			}
		}
		h.refused(t, http.StatusNotFound, "not_found", "GET", "/v1/workflows/nothing", "")
	})
}

func TestAUTH_01_WhoHasNoKey(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		if h.key == "" {
			return // a host in test mode requires none
		}
		run := h.completed(t)
		for _, request := range [][3]string{
			{"POST", "/v1/runs", "{}"}, {"GET", "/v1/runs/" + run, ""}, {"GET", "/v1/runs/" + run + "/events", ""}, {"GET", "/v1/runs/" + run + "/events/poll", ""},
			{"POST", "/v1/runs/" + run + ":fork", "{}"}, {"POST", "/v1/runs/" + run + "/cancel", ""}, {"GET", "/v1/workflows/settlement", ""},
		} {
			h.refused(t, http.StatusUnauthorized, "unauthenticated", request[0], request[1], request[2], "Authorization", "")
		}
		h.refused(t, http.StatusUnauthorized, "unauthenticated", "GET", "/v1/runs/"+run, "", "Authorization", "Bearer nonsense")
	})
}

// A run of another tenant, one that never existed, and one whose id is none are refused alike.
func TestAUTH_02_OtherTenantsSeeNothing(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		if h.other == "" {
			return
		}
		run, _ := h.dead(t)
		key := []string{"Authorization", "Bearer " + h.other}
		for _, request := range [][3]string{{"GET", "", ""}, {"GET", "/events", ""}, {"GET", "/events/poll", ""}, {"POST", ":fork", `{"mode":"branch","fromSeq":0}`}, {"POST", "/cancel", ""}} {
			foreign := h.refused(t, http.StatusNotFound, "not_found", request[0], "/v1/runs/"+run+request[1], request[2], key...)
			unknown := h.refused(t, http.StatusNotFound, "not_found", request[0], "/v1/runs/01934b2e-7c00-7000-8000-00000000000a"+request[1], request[2], key...)
			malformed := h.refused(t, http.StatusNotFound, "not_found", request[0], "/v1/runs/run_1"+request[1], request[2], key...)
			if foreign.raw != unknown.raw || foreign.raw != malformed.raw {
				t.Errorf("%s: %s %s %s", request[1], foreign.raw, unknown.raw, malformed.raw)
			}
		}
		tenants := h.want(t, http.StatusOK, "GET", "/v1/runs/"+run, "").object.object("owner")
		if text, err := json.Marshal(tenants); err != nil || string(text) != `{"tenant":"acme"}` {
			t.Errorf("owner %s, %v", text, err)
		}
	})
}
