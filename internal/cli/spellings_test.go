package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// A file of adjudications makes no second id of another spelling of one: each line is refused with the code point that is
// wrong, and takes no other line with it.
func TestAFileRefusesOtherSpellingsOfAnID(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	var file strings.Builder
	right, wrong := 0, 0
	for n, s := range testkit.Spellings() {
		id := s.ID
		if s.Wrong == "" {
			id, right = fmt.Sprint(id, "-", n), right+1
		} else {
			wrong++
		}
		text, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		file.WriteString(strings.NewReplacer(`"txr_1"`, string(text), "esc_1", fmt.Sprint("esc_", n)).Replace(clitest.Line))
	}
	out := p.Run(file.String(), "submit", "-")
	if out.Code == 0 || strings.Count(out.Out, "an id is in Unicode form NFC") != wrong {
		t.Errorf("rc %d, %d refusals of %d\n%.2000s", out.Code, strings.Count(out.Out, "an id is in Unicode form NFC"), wrong, out.Out)
	}
	for _, s := range testkit.Spellings() {
		if s.Wrong != "" && !strings.Contains(out.Out, " has "+s.Wrong) {
			t.Errorf("%+q: no line names %s\n%.600s", s.ID, s.Wrong, out.Out)
		}
	}
	var runs int
	if err := testkit.OpenAsOwner(t, p.URL).QueryRow(`SELECT count(*) FROM recourse.runs`).Scan(&runs); err != nil || runs != right || right == 0 {
		t.Errorf("%d runs of %d lines, %v", runs, right, err)
	}
}
