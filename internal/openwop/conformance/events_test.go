package conformance_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// required are the members of payloads that the catalogue requires, by type.
var required = map[string][]string{
	"run.started": {"workflowId"}, "node.started": {"nodeId", "typeId"}, "node.retried": {"nodeId", "attempt"}, "node.completed": {"nodeId"},
	"node.failed": {"nodeId", "error"}, "run.dead_lettered": {"runId", "reason", "attempts"}, "run.failed": {"error"}, "run.completed": {}, "run.cancelled": {},
}

func TestEVT_01_EnvelopesAndPayloads(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		dead, deadLog := h.dead(t)
		paid := h.completed(t)
		for run, log := range map[string][]object{dead: deadLog, paid: h.log(t, paid)} {
			ids := map[string]bool{}
			var before time.Time
			for i, e := range log {
				id := e.text("eventId")
				if len(id) < 1 || len(id) > 128 || ids[id] {
					t.Errorf("eventId %q", id)
				}
				ids[id] = true
				if e.text("runId") != run || e.integer(t, "sequence") != i {
					t.Errorf("event %d: %v", i, e)
				}
				at, err := time.Parse(time.RFC3339, e.text("timestamp"))
				if err != nil || at.Before(before) {
					t.Errorf("event %d: %v, %s before %s", i, err, at, before)
				}
				before = at
				members, known := required[e.text("type")]
				if !known {
					t.Errorf("no such type in the catalogue: %s", e.text("type"))
				}
				for _, member := range members {
					if e.object("payload")[member] == nil {
						t.Errorf("%s has no %s", e.text("type"), member)
					}
				}
			}
		}
	})
}

func TestEVT_02_AttemptsAreCounted(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		_, log := h.dead(t)
		started, retried := 0, 0
		for _, e := range log {
			switch e.text("type") {
			case "node.started":
				if e.object("payload").integer(t, "attempt") != started || retried != started {
					t.Errorf("start %d: %v after %d retries", started, e, retried)
				}
				started++
			case "node.retried":
				retried++
				p := e.object("payload")
				if p.integer(t, "attempt") != retried || p.integer(t, "delayMs") < 0 || p.object("lastError").text("code") == "" {
					t.Errorf("retry %d: %v", retried, e)
				}
			case "node.failed", "run.dead_lettered":
				if got := e.object("payload").integer(t, "attempts"); got != started {
					t.Errorf("%s says %d attempts, %d were made", e.text("type"), got, started)
				}
			}
		}
		if started != 3 {
			t.Errorf("%d attempts", started)
		}
	})
}

func TestEVT_03_OneEndThatIsLast(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		dead, deadLog := h.dead(t)
		h.want(t, http.StatusCreated, "POST", "/v1/runs/"+dead+":fork", `{"mode":"branch","fromSeq":0}`)
		paid := h.completed(t)
		for name, log := range map[string][]object{"dead": deadLog, "dead and forked": h.log(t, dead), "paid": h.log(t, paid)} {
			ends := 0
			for _, e := range log {
				if slices.Contains([]string{"run.completed", "run.failed", "run.cancelled"}, e.text("type")) {
					ends++
				}
			}
			if last := log[len(log)-1].text("type"); ends != 1 || last != "run.completed" && last != "run.failed" {
				t.Errorf("%s: %s", name, types(log))
			}
		}
	})
}

func TestPOLL_01_EventsAfterASequence(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		run, log := h.dead(t)
		path := "/v1/runs/" + run + "/events/poll"
		first := h.want(t, http.StatusOK, "GET", path, "")
		if again := h.want(t, http.StatusOK, "GET", path, ""); again.raw != first.raw {
			t.Errorf("two polls of a finished run differ")
		}
		for after := range len(log) + 2 {
			a := h.want(t, http.StatusOK, "GET", fmt.Sprintf("%s?lastSequence=%d&timeout=1", path, after), "")
			found, is := a.object["events"].([]any)
			if !is || len(found) != max(0, len(log)-1-after) || a.object["isComplete"] != true {
				t.Errorf("after %d: %s", after, a.raw)
			}
		}
		for _, bad := range []string{"lastSequence=x", "lastSequence=1.5", "timeout=0", "timeout=61", "timeout=x", "lastSequence=", "unknown=1"} {
			h.refused(t, http.StatusBadRequest, "validation_error", "GET", path+"?"+bad, "")
		}
	})
}

func TestSSE_01_TheStreamIsTheLogAndEnds(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		run, log := h.dead(t)
		frames := h.stream(t, run, "?streamMode=debug", "")
		if len(frames) != len(log) {
			t.Fatalf("%d frames of %d events", len(frames), len(log))
		}
		for i, f := range frames {
			e := decode(t, f.Data)
			if f.ID != fmt.Sprint(i) || f.Event != log[i].text("type") || e.text("eventId") != log[i].text("eventId") || strings.Contains(f.Data, "\n") {
				t.Errorf("%+v", f)
			}
		}
		rest := h.stream(t, run, "?streamMode=debug", "2")
		if len(rest) != len(log)-3 || rest[0].ID != "3" {
			t.Errorf("after 2: %+v", rest)
		}
	})
}

func TestSSE_02_Modes(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		run, _ := h.dead(t)
		shown := func(query string) (out []string) {
			for _, f := range h.stream(t, run, query, "") {
				out = append(out, f.Event)
			}
			return out
		}
		updates := []string{"run.started", "node.failed", "run.dead_lettered", "run.failed"}
		if got := shown(""); !slices.Equal(got, updates) {
			t.Errorf("without a mode: %v", got)
		}
		if got := shown("?streamMode=updates"); !slices.Equal(got, updates) {
			t.Errorf("updates: %v", got)
		}
		if got := shown("?streamMode=messages"); len(got) != 0 {
			t.Errorf("messages: %v", got)
		}
		values := h.stream(t, run, "?streamMode=values", "")
		for _, f := range values {
			if f.Event != "state.snapshot" || decode(t, f.Data).object("payload").text("runId") != run {
				t.Errorf("%+v", f)
			}
		}
		if last := decode(t, values[len(values)-1].Data).object("payload"); last.text("status") != "failed" {
			t.Errorf("%v", last)
		}
		if batches := shown("?bufferMs=50"); len(batches) != 1 || batches[0] != "batch" {
			t.Errorf("with bufferMs: %v", batches)
		}
		for _, bad := range []string{"everything", "values,updates", "Updates"} {
			a := h.refused(t, http.StatusBadRequest, "unsupported_stream_mode", "GET", "/v1/runs/"+run+"/events?streamMode="+bad, "")
			if supported, is := a.object.object("details")["supported"].([]any); !is || len(supported) != 4 {
				t.Errorf("%s", a.raw)
			}
		}
		if got := shown("?streamMode=updates,messages"); len(got) != len(updates) {
			t.Errorf("updates,messages: %v", got)
		}
	})
}

func TestSSE_03_AReaderOfARunAtWorkSeesItsEnd(t *testing.T) {
	onEach(t, func(t *testing.T, h *host) {
		run := h.create(t, adjudication(fails))
		frames := h.stream(t, run, "", "")
		if len(frames) == 0 || frames[len(frames)-1].Event != "run.failed" || frames[len(frames)-2].Event != "run.dead_lettered" {
			t.Errorf("%+v", frames)
		}
	})
}
