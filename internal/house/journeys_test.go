package house

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// longestJourney is how many files a reader may have to open to follow a journey.
const longestJourney = 14

// journeys are the sections of the contributors' guide that list files, one a step:
//
//  1. `folder/file.go` (`name`, `name`): what it does.
var journeys = []string{
	"How an adjudication flows", "How an attempt ends", "How a transition is committed", "How a death becomes events", "How a row gets into a batch",
	"How a person's request flows", "How receipts verify flows",
	"How a job is enqueued", "How a job is fetched", "How a nack kills a job", "How a dead job is retried",
}

var (
	numberedLine = regexp.MustCompile(`(?m)^\d+\. .*$`)
	journeyStep  = regexp.MustCompile("^(\\d+)\\. `([^`]+\\.go)` \\(((?:`\\w+`(?:, )?)+)\\): ")
	fileInGuide  = regexp.MustCompile("`([\\w./-]+\\.go)`")
)

func TestJourneysOfTheGuideLeadThroughTheCode(t *testing.T) {
	t.Parallel()
	guide := contributorsGuide(t)
	declares := namesByFile(sources(t))
	for _, title := range journeys {
		for _, problem := range journeyProblems(title, section(guide, title), declares) {
			t.Error(problem)
		}
	}
	for _, named := range fileInGuide.FindAllStringSubmatch(guide, -1) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(declares)), func(file string) bool { return strings.HasSuffix("/"+file, "/"+named[1]) }) {
			t.Errorf("internal/README.md names %s, and there is no such file", named[1])
		}
	}
}

func contributorsGuide(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section returns what stands below a heading of the third level.
func section(guide, title string) string {
	_, after, _ := strings.Cut(guide, "\n### "+title+"\n")
	text, _, _ := strings.Cut(after, "\n##")
	return text
}

// namesByFile returns what each file declares: functions, methods, types, constants and variables.
func namesByFile(files []source) map[string][]string {
	out := map[string][]string{}
	for _, s := range files {
		names := []string{}
		for _, d := range s.file.Decls {
			for _, name := range declared(d) {
				names = append(names, name.Name)
			}
		}
		out[s.name] = names
	}
	return out
}

// journeyProblems reports the steps that are not of the form above, name what is not there, or are too
// many.
func journeyProblems(title, text string, declares map[string][]string) (problems []string) {
	steps := numberedLine.FindAllString(text, -1)
	if len(steps) == 0 || len(steps) > longestJourney {
		problems = append(problems, fmt.Sprintf("%s: %d steps, 1 to %d", title, len(steps), longestJourney))
	}
	for i, line := range steps {
		step := journeyStep.FindStringSubmatch(line)
		if step == nil || step[1] != fmt.Sprint(i+1) {
			problems = append(problems, fmt.Sprintf("%s: step %d names no file with what to read there: %s", title, i+1, line))
			continue
		}
		names, found := declares[step[2]]
		if !found {
			problems = append(problems, fmt.Sprintf("%s: there is no file %s", title, step[2]))
			continue
		}
		for name := range strings.SplitSeq(step[3], ", ") {
			if name = strings.Trim(name, "`"); !slices.Contains(names, name) {
				problems = append(problems, fmt.Sprintf("%s: %s declares no %s", title, step[2], name))
			}
		}
	}
	return problems
}

func TestStepsThatLeadNowhereAreFound(t *testing.T) {
	t.Parallel()
	declares := map[string][]string{"a/b.go": {"Do", "flush"}}
	for _, c := range []struct{ text, want string }{
		{"1. `a/b.go` (`Do`): reads.\n2. `a/b.go` (`Do`, `flush`): writes\n   all.", ""},
		{"1. `a/c.go` (`Do`): reads.", "J: there is no file a/c.go"},
		{"1. `a/b.go` (`Do`, `gone`): reads.", "J: a/b.go declares no gone"},
		{"1. `a/b.go` reads.", "J: step 1 names no file with what to read there: 1. `a/b.go` reads."},
		{"2. `a/b.go` (`Do`): reads.", "J: step 1 names no file with what to read there: 2. `a/b.go` (`Do`): reads."},
		{"Nothing.", "J: 0 steps, 1 to 14"},
		{strings.Repeat("1. `a/b.go` (`Do`): reads.\n", 15), "J: 15 steps, 1 to 14"},
	} {
		if got := journeyProblems("J", section("# Guide\n\n### J\n\n"+c.text+"\n\n### K\n\n1. x\n", "J"), declares); strings.Join(got[:min(1, len(got))], "") != c.want {
			t.Errorf("%s\nfound %q, want %q", c.text, got, c.want)
		}
	}
}
