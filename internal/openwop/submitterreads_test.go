package openwop

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

// Asks every operation by which a submitter reads a run for one that another principal created: it is answered as one that
// does not exist. A refusal names no run of another principal.
func TestASubmitterReadsOnlyTheRunsOfItsPrincipal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop, mallory := f.keyOf("service:shop", access.Submitter), f.keyOf("service:mallory", access.Submitter)
	auditor, fork := f.keyOf("service:mallory", access.Submitter, access.Auditor), f.keyOf("user:ada", access.Operator)
	run := f.dead(shop, "txr_1")
	forked := f.want(http.StatusCreated, fork, "POST", forkPath(run), branch).run()
	f.finished(shop, forked)
	const nobody = "01934b2e-7c00-7000-8000-00000000000a"
	asked := 0
	for _, o := range f.server.operations() {
		method, path, _ := strings.Cut(o.pattern, " ")
		if o.action != access.Read || !strings.Contains(path, "{run}") {
			continue
		}
		asked++
		want := f.refused(http.StatusNotFound, "not_found", mallory, method, strings.Replace(path, "{run}", nobody, 1), "")
		for _, id := range []string{run, forked} {
			path := strings.Replace(path, "{run}", id, 1)
			if got := f.ask(mallory, method, path, ""); got.status != want.status || string(got.text) != string(want.text) {
				t.Errorf("%s: %d %s, want %s", path, got.status, got.text, want.text)
			}
			f.want(http.StatusOK, shop, method, path, "")
			f.want(http.StatusOK, auditor, method, path, "")
		}
	}
	if asked != 3 {
		t.Errorf("a submitter reads a run by %d operations", asked)
	}
	for body, reply := range map[string]string{adjudication("txr_1"): "dead_lettered", strings.Replace(adjudication("txr_1"), "release", "refund", 1): "conflicting_adjudication"} {
		if refused := f.refused(http.StatusConflict, reply, mallory, "POST", "/v1/runs", body); strings.Contains(string(refused.text), run) || strings.Contains(string(refused.text), forked) {
			t.Errorf("%s", refused.text)
		}
	}
}
