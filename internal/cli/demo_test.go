package cli

import (
	"strings"
	"testing"
)

// The printed lines can be copied into a shell unchanged.
func TestTheDemonstrationPrintsLinesThatCanBeTyped(t *testing.T) {
	t.Parallel()
	const url, database, archive = "http://127.0.0.1:8321", "postgres://postgres:word@127.0.0.1:5/d?sslmode=disable", "/tmp/archive"
	all := strings.Join(nextSteps(url, database, archive), "\n")
	for _, want := range []string{
		"RECOURSE_DATABASE_URL='" + database + "' recourse receipts verify --tenant northwind-homes\n",
		"RECOURSE_DATABASE_URL='" + database + "' recourse keys create --tenant northwind-homes --principal user:ada",
		"--server " + url + " --tenant", "curl -X POST " + url + "/demo/repair\n", "'" + url + "/demo/clock?forward=P180D'", archive + ")",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if strings.ContainsAny(all, "{}") {
		t.Errorf("something was not filled in:\n%s", all)
	}
}
