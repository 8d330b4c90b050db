package openwop

import (
	"net/http"
	"testing"
)

// If-None-Match is compared weakly and may be a list or * (RFC 9110, 13.1.2). A proxy that compresses
// makes every entity tag weak.
func TestIfNoneMatchIsCompared(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	etag := f.want(http.StatusOK, "", "GET", DiscoveryPath, "").header.Get("ETag")
	for _, value := range []string{"W/" + etag, `"other", ` + etag, "*"} {
		if a := f.ask("", "GET", DiscoveryPath, "", "If-None-Match", value); a.status != http.StatusNotModified {
			t.Errorf("If-None-Match: %s: %d", value, a.status)
		}
	}
}

// The guide: every answer about a run names its case.
func TestEveryAnswerAboutARunNamesItsCase(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.dead(key, "txr_1")
	for name, a := range map[string]answer{
		"read":   f.want(http.StatusOK, key, "GET", "/v1/runs/"+run, ""),
		"poll":   f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll", ""),
		"create": f.want(http.StatusCreated, key, "POST", "/v1/runs", `{"workflowId":"chores"}`),
		"fork":   f.want(http.StatusCreated, key, "POST", forkPath(run), branch),
	} {
		if a.header.Get("Recourse-Case") == "" {
			t.Errorf("%s: no Recourse-Case", name)
		}
	}
}
