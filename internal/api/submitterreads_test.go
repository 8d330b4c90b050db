package api_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
)

// What a submitter is answered that asks for what another principal submitted.
const (
	notFound = "not found" // as what does not exist
	leftOut  = "left out"  // a list or a stream without it
	settings = "settings"  // of the tenant; no object of a principal
)

// submitterReads has each operation by which a submitter reads.
var submitterReads = map[string]string{
	"get-run": notFound, "get-case": notFound, "find-case": notFound, "get-dead-letter": notFound,
	"list-events": leftOut, "stream-events": leftOut,
	"list-breakers": settings, "get-people": settings, "list-policies": settings, "get-retention": settings, "list-rules": settings,
}

// Asks every described operation by which a submitter reads, with keys of a principal that submitted something else, and of the one
// that submitted what is asked for, whose name has another case. A key of a further role reads the whole tenant, unless that is worker.
func TestASubmitterReadsOnlyWhatItsPrincipalSubmitted(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *app.Options) { o.TimeLimit = 5 * time.Second }, sendsWebhooks).work()
	all, about := r.description(), r.newResources()
	mallory, worker := r.keyNamed("acme", "service:mallory", access.Submitter), r.keyNamed("acme", "service:mallory", access.Submitter, access.Worker)
	other := r.ask(mallory, http.MethodPost, "/api/v1/adjudications", adjudication(3, `"ok"`)).is(http.StatusCreated)["run_id"].(string)
	if err := r.main.Service.DrainEvents(t.Context()); err != nil {
		t.Fatal(err)
	}
	owner, auditor := r.keyNamed("acme", "user:Submitter@acme", access.Submitter), r.keyNamed("acme", "service:both", access.Submitter, access.Auditor)
	run := about["run"][own]
	seen := map[string]bool{}
	for _, d := range all.operations {
		if !slices.Contains(d.roles, access.Submitter) || d.method != http.MethodGet {
			continue
		}
		kind := submitterReads[d.id]
		if kind == "" {
			t.Errorf("%s: say what a submitter reads by it", d)
		}
		seen[d.id] = true
		theirs, names, _ := about.path(t, d, own)
		none, absentNames, _ := about.path(t, d, absent)
		for _, token := range []string{mallory, worker} {
			text := r.readBy(token, all, d, theirs)
			if kind == notFound {
				for i, name := range absentNames {
					text = strings.ReplaceAll(text, names[i], name)
				}
				if want := r.readBy(token, all, d, none); text != want || !strings.HasPrefix(text, "404 ") {
					t.Errorf("%s: %s, of an unknown one %s", d, text, want)
				}
			}
			if strings.Contains(text, run) || kind == leftOut && !strings.Contains(text, other) || !strings.HasPrefix(text, "404 ") && !strings.HasPrefix(text, "200 ") {
				t.Errorf("%s: %s", d, text)
			}
		}
		for _, token := range []string{owner, auditor} {
			if text := r.readBy(token, all, d, theirs); !strings.HasPrefix(text, "200 ") || kind != settings && !strings.Contains(text, run) {
				t.Errorf("%s by who may read it: %s", d, text)
			}
		}
	}
	if len(seen) != len(submitterReads) {
		t.Errorf("of %v there are %v", slices.Sorted(maps.Keys(submitterReads)), slices.Sorted(maps.Keys(seen)))
	}
}

// readBy returns the status and the text of an answer; of a stream its first event.
func (r *rig) readBy(token string, all description, d described, path string) string {
	r.t.Helper()
	if d.id != "stream-events" {
		status, text := r.tryOperation(token, all, d, path)
		return fmt.Sprintf("%d %s", status, text)
	}
	ctx, leave := context.WithCancel(r.t.Context())
	live := r.listen(ctx, token, path)
	first := <-live
	leave()
	for range live { // until the stream ends
	}
	return "200 " + first.data
}
