package dlq_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// An analysis has the ten largest causes, all causes, or one.
func TestEveryCauseCanBeListed(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
	defer stop()
	made := p.Run("", "keys", "create", "--tenant", "acme", "--principal", "user:ada", "--roles", "auditor", "--actor", "root", "--reason", "test", "--json")
	made.Check(t, "keys create", 0, "")
	var in strings.Builder
	const causes = 13
	for i := range causes {
		id := fmt.Sprint(i + 1)
		cause := string(rune('a'+i)) + "payee" // each escrow is named in its refusal
		in.WriteString(strings.NewReplacer("txr_1", "txr_"+id, "sub_1", "sub_"+id, "adj_1", "adj_"+id, "esc_1", cause, `{"transaction`, `{"simulate":"refused","transaction`).Replace(clitest.Line))
	}
	p.Run(in.String(), "submit", "-").Check(t, "submit", 0, "")
	library := &operator{Environment: p}
	for id := 1; id <= causes; id++ {
		library.letter(fmt.Sprintf("txr_%d", id))
	}
	server := &operator{Environment: p, server: v["url"].(string), tokens: map[string]string{"auditor": made.Object(t)["token"].(string)}}
	for name, o := range map[string]*operator{"the library": library, "a server": server} {
		few, all := o.mustRun("auditor", "analyze"), o.mustRun("auditor", "analyze", "--all")
		groups := all["largest_groups"].([]any)
		if few["groups"] != float64(causes) || len(few["largest_groups"].([]any)) != 10 || len(groups) != causes || all["groups"] != float64(causes) {
			t.Fatalf("%s: %v of %v, then %d", name, len(few["largest_groups"].([]any)), few["groups"], len(groups))
		}
		one := groups[7].(map[string]any)["signature"].(string)
		listed := o.mustRun("auditor", "analyze", "--group", one)
		if listed["letters"] != 1.0 || listed["groups"] != 1.0 || listed["largest_groups"].([]any)[0].(map[string]any)["signature"] != one {
			t.Errorf("%s: %v", name, listed)
		}
		if none := o.dlq("auditor", "analyze", "--group", "nobody: knows"); none.Code != 0 || !strings.Contains(none.Out, "No dead letters") {
			t.Errorf("%s: %+v", name, none)
		}
		if shown := o.dlq("auditor", "analyze", "--all"); shown.Code != 0 || !strings.Contains(shown.Out, fmt.Sprintf("Causes, %d of %d", causes, causes)) {
			t.Errorf("%s: %+v", name, shown)
		}
		o.dlq("auditor", "analyze", "--group", "x", "--signature", "y").Check(t, "both", 2, "exclude each other")
		o.dlq("auditor", "analyze", "--group=").Check(t, "nothing", 2, "--group is empty")
	}
}
