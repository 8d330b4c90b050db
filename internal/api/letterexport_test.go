package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/api"
)

func TestLettersAreExportedWholeAndSearchedByACondition(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	auditor := r.key("acme", access.Auditor)
	r.letter("acme", 1, `"refused"`)
	r.letter("acme", 2, `"retryable"`)
	r.letter("other", 3, `"refused"`)
	export := func(query string) (text string, trailer http.Header, kind string) {
		t.Helper()
		resp, err := http.DefaultClient.Do(r.request(t.Context(), auditor, http.MethodGet, "/api/v1/dead-letters/export"+query, ""))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v %s", query, resp.StatusCode, err, all)
		}
		return string(all), resp.Trailer, resp.Header.Get("Content-Type")
	}
	text, trailer, kind := export("")
	var letters []map[string]any
	if err := json.Unmarshal([]byte(text), &letters); err != nil || len(letters) != 2 || kind != "application/json" || trailer.Get(api.ExportedLetters) != "2" {
		t.Errorf("%v %v %s %v", err, letters, kind, trailer)
	}
	if text, trailer, _ := export("?format=jsonl&error_type=http.refused"); strings.Count(text, "\n") != 1 || trailer.Get(api.ExportedLetters) != "1" {
		t.Errorf("%q %v", text, trailer)
	}
	if text, _, kind := export("?format=csv"); strings.Count(text, "\n") != 3 || !strings.HasPrefix(kind, "text/csv") {
		t.Errorf("%q", text)
	}
	where := "where=" + url.QueryEscape(`error.type == "http.refused" && amount.minor >= 1000`)
	if _, trailer, _ := export("?" + where); trailer.Get(api.ExportedLetters) != "1" || trailer.Get(api.ExportedScanned) != "2" {
		t.Errorf("%v", trailer)
	}
	get := func(path string) answer { return r.ask(auditor, http.MethodGet, "/api/v1/dead-letters/"+path, "") }
	found := get("search?" + where).is(http.StatusOK)
	if len(found["letters"].([]any)) != 1 || found["scanned"] != 2.0 || found["complete"] != true {
		t.Errorf("%v", found)
	}
	get("search?where=amount.minor+%2B").refused(http.StatusUnprocessableEntity, "invalid", "where")
	get("export?where=amont.minor+%3E+1").refused(http.StatusUnprocessableEntity, "invalid", "where")
	get("export?format=xls").refused(http.StatusUnprocessableEntity, "invalid", "format")
	get("export?error_typ=x").refused(http.StatusUnprocessableEntity, "invalid", "error_typ")
	get("search").refused(http.StatusUnprocessableEntity, "invalid", "where")
}
