package webhookdelivery

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

// javaScript runs testdata/javascript/verify.mjs, with the libraries that its lock file names, on
// lines of input.
func javaScript(t *testing.T, lines []any) (out []map[string]any) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "verify.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata", "javascript", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if text, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci (on Debian: apt-get install nodejs npm): %v\n%s", err, text)
	}
	var input, answers, problems bytes.Buffer
	for _, l := range lines {
		if err := json.NewEncoder(&input).Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	verify := exec.Command("node", "verify.mjs")
	verify.Dir, verify.Stdin, verify.Stdout, verify.Stderr = dir, &input, &answers, &problems
	if err := verify.Run(); err != nil {
		t.Fatalf("%v: %s", err, problems.String())
	}
	for scan := bufio.NewScanner(&answers); scan.Scan(); {
		var got map[string]any
		if err := json.Unmarshal(scan.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		out = append(out, got)
	}
	if len(out) != len(lines) {
		t.Fatalf("%d answers to %d lines: %s", len(out), len(lines), problems.String())
	}
	return out
}

// The published JavaScript libraries verify the signature with either secret, and read the event.
func TestTheJavaScriptLibrariesReadWhatIsSent(t *testing.T) {
	t.Parallel()
	type request struct {
		Secret  string            `json:"secret"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	run := receipts.RunID{2}
	secrets := [][]byte{[]byte(strings.Repeat("n", 32)), []byte(strings.Repeat("o", 24))}
	texts := make([]string, len(secrets))
	for i, s := range secrets {
		texts[i] = secretPrefix + base64.StdEncoding.EncodeToString(s)
	}
	var lines []any
	var want []string
	for i, typ := range events.Types() {
		e := eventlog.Event{Position: eventlog.Position(8 * (i + 1)), Event: events.Event{
			ID: fmt.Sprintf("%s.%d.0", receipts.CaseID{1}, i+1), Type: typ, Tenant: "acmé", Case: receipts.CaseID{1}, Run: run, At: time.Date(2026, 11, 25, 10, 0, 0, 1000, time.UTC),
			Data: events.Data{RunID: run, Reason: "é\u2028\"<", Amount: 1<<53 - 1},
		}}
		body, err := render(e)
		if err != nil {
			t.Fatal(err)
		}
		headers := http.Header{}
		if err := setHeaders(headers, e.ID, time.Now(), body, secrets); err != nil {
			t.Fatal(err)
		}
		r := request{Headers: map[string]string{}, Body: string(body)}
		for name := range headers {
			r.Headers[strings.ToLower(name)] = headers.Get(name)
		}
		for _, r.Secret = range texts {
			lines, want = append(lines, r), append(want, e.ID)
		}
		r.Secret = secretPrefix + base64.StdEncoding.EncodeToString(make([]byte, 32))
		altered := r
		altered.Secret, altered.Body = texts[0], strings.Replace(r.Body, "acm", "bcm", 1)
		lines, want = append(lines, r, altered), append(want, "", "")
	}
	for i, got := range javaScript(t, lines) {
		data, _ := got["data"].(map[string]any)
		switch {
		case want[i] == "":
			if got["error"] != "WebhookVerificationError: No matching signature found" {
				t.Errorf("line %d: %v", i, got)
			}
		case got["id"] != want[i], got["specversion"] != "1.0", got["source"] != "/tenants/acm%C3%A9", got["tenant"] != "acmé", got["subject"] != run.String(),
			data["runId"] != run.String(), data["reason"] != "é\u2028\"<", data["amount"] != float64(1<<53-1):
			t.Errorf("line %d: %v", i, got)
		}
	}
}
