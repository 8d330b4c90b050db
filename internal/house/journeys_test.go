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

// longestJourney is how many files a reader may have to open to follow a journey: all that its steps name.
const longestJourney = 14

// journeys are the sections of the contributors' guide that list files, one a step:
//
//  1. `folder/file.go` (`name`, `name`): what it does.
var journeys = []string{
	"How an adjudication flows", "How an attempt ends", "How a transition is committed", "How a death becomes events", "How a row gets into a batch",
	"How a person's request flows", "How receipts verify flows",
	"How a job is enqueued", "How a job is fetched", "How a nack kills a job", "How a dead job is retried", "How a fork over OpenWOP flows",
}

var (
	numberedLine = regexp.MustCompile(`(?m)^\d+\. .*$`)
	wholeStep    = regexp.MustCompile(`(?m)^\d+\. .*(?:\n +.*)*`)
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
	if files := filesOfSteps(text); len(files) == 0 || len(files) > longestJourney {
		problems = append(problems, fmt.Sprintf("%s: %d files, 1 to %d: %s", title, len(files), longestJourney, strings.Join(files, " ")))
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

// filesOfSteps returns the files that the steps name, each once. A name without its folder is that of a file
// which another step names with it, if there is one.
func filesOfSteps(text string) (files []string) {
	for _, step := range wholeStep.FindAllString(text, -1) {
		for _, named := range fileInGuide.FindAllStringSubmatch(step, -1) {
			files = append(files, named[1])
		}
	}
	slices.SortStableFunc(files, func(a, b string) int { return len(b) - len(a) })
	var out []string
	for _, file := range files {
		if !slices.ContainsFunc(out, func(longer string) bool { return strings.HasSuffix("/"+longer, "/"+file) }) {
			out = append(out, file)
		}
	}
	return out
}

func TestStepsThatLeadNowhereAreFound(t *testing.T) {
	t.Parallel()
	declares := map[string][]string{"a/b.go": {"Do", "flush"}}
	for n := range 14 {
		declares[fmt.Sprintf("a/%d.go", n)] = []string{"Do"}
	}
	stepsOf := func(n int) (steps string) {
		for i := range n {
			steps += fmt.Sprintf("%d. `a/%d.go` (`Do`): reads.\n", i+1, i)
		}
		return steps
	}
	for _, c := range []struct{ text, want string }{
		{"1. `a/b.go` (`Do`): reads.\n2. `a/b.go` (`Do`, `flush`): writes\n   all.", ""},
		{"1. `a/c.go` (`Do`): reads.", "J: there is no file a/c.go"},
		{"1. `a/b.go` (`Do`, `gone`): reads.", "J: a/b.go declares no gone"},
		{"1. `a/b.go` reads.", "J: step 1 names no file with what to read there: 1. `a/b.go` reads."},
		{"2. `a/b.go` (`Do`): reads.", "J: step 1 names no file with what to read there: 2. `a/b.go` (`Do`): reads."},
		{"Nothing.", "J: 0 files, 1 to 14: "},
		{stepsOf(14) + "15. `a/0.go` (`Do`): writes\n   as `0.go` reads.\n\nAlso `a/15.go`.", ""},
		{stepsOf(13) + "14. `a/13.go` (`Do`): writes\n    beside `a/14.go`.", "J: 15 files, 1 to 14: a/10.go a/11.go a/12.go a/13.go a/14.go a/0.go a/1.go a/2.go a/3.go a/4.go a/5.go a/6.go a/7.go a/8.go a/9.go"},
	} {
		if got := journeyProblems("J", section("# Guide\n\n### J\n\n"+c.text+"\n\n### K\n\n1. x\n", "J"), declares); strings.Join(got[:min(1, len(got))], "") != c.want {
			t.Errorf("%s\nfound %q, want %q", c.text, got, c.want)
		}
	}
}
