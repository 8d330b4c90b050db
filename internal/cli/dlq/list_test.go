package dlq

import (
	"bytes"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// A closed letter is listed with its status.
func TestAListShowsTheStatusOfALetter(t *testing.T) {
	t.Parallel()
	var list bytes.Buffer
	page := deadletter.Page{Letters: []deadletter.Letter{{Status: "reconciled", RefusedBy: refusal.GateNotOpen}}}
	if err := showLetters(screen.New(&list), page, ""); err != nil || !strings.Contains(list.String(), "reconciled") || strings.Contains(list.String(), "not_open") {
		t.Errorf("%v\n%s", err, list.String())
	}
}
