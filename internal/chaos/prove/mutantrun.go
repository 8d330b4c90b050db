package prove

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// publicDoors are the tests that meet the packages' conditions on money through another package.
var publicDoors = []Detector{
	{Package: "./postadjudication", Test: "Test.*(Paid|Payment|Finding|Fork|Lookup|Call|Cancel|Letter|Unknown|Answer|Generation|Executed|Reservation).*"},
	{Package: "./postadjudication/jobs", Test: "Test.*(Answer|Lease|Worker|Fetch|Order|Key|Cancel|Late).*"},
}

// mutantRun tries the mutants of one package. They are all in its test programs, each behind its number.
type mutantRun struct {
	*prover
	pkg      string
	compiled map[int]mutant // the mutants in the programs
	programs []mutantProgram
	tests    []mutantTest // that pass as the product is, those of the package first, then the fastest

	mu      sync.Mutex
	killers map[string]bool // file and test: the test has killed a mutant of the file
}

// mutantProgram is a test program of a package.
type mutantProgram struct {
	pkg, pattern string // of its tests
	file         string
}

// mutantTest is a test of a program.
type mutantTest struct {
	program mutantProgram
	name    string
	met     []int // the mutants that change something in it
	took    time.Duration
}

// buildMutants builds the test programs that meet a package: its own, those of the guards of its files, and that of its
// public door. A mutant that does not compile is left out.
func (p *prover) buildMutants(ctx context.Context, pkg string, numbered map[int]mutant) (*mutantRun, error) {
	dir, err := os.MkdirTemp(p.dir, "mutants-")
	if err != nil {
		return nil, err
	}
	run := &mutantRun{prover: p, pkg: pkg, compiled: numbered, killers: map[string]bool{}}
	for _, d := range detectorsOf(pkg) {
		file := filepath.Join(dir, fmt.Sprint(len(run.programs), ".test"))
		program := mutantProgram{pkg: d.Package, pattern: "^" + d.Test + "$", file: file}
		for {
			changed, err := overlay(p.root, dir, pkg, numbered)
			if err != nil {
				return nil, err
			}
			r, err := p.build(ctx, d, changed, program.file)
			if err != nil {
				return nil, err
			}
			if r.verdict == "" {
				break
			}
			if !leaveOut(numbered, r.output) {
				return nil, fmt.Errorf("prove: %s does not compile with mutants: %s", d.Package, r.output)
			}
		}
		run.programs = append(run.programs, program)
	}
	return run, nil
}

// compilerError matches where the compiler found an error: in a file of the overlay, which has a number before its name.
var compilerError = regexp.MustCompile(`(?m)^\S*/\d+_([^/\s]+\.go):(\d+):`)

// leaveOut takes the mutants out that are on the lines of a compiler's errors. It reports whether there is one.
func leaveOut(numbered map[int]mutant, output string) (any bool) {
	for _, at := range compilerError.FindAllStringSubmatch(output, -1) {
		line, err := strconv.Atoi(at[2])
		for n, m := range numbered {
			if err == nil && filepath.Base(m.File) == at[1] && m.Line <= line && line <= m.Line+strings.Count(m.Text, "\n") {
				delete(numbered, n)
				any = true
			}
		}
	}
	return any
}

// meet runs each test once as the product is, unless an earlier run did with the same program, and records which mutants
// change something in it.
func (run *mutantRun) meet(ctx context.Context, kept *results) error {
	for _, program := range run.programs {
		raw, err := os.ReadFile(program.file)
		if err != nil {
			return err
		}
		tests, err := run.list(ctx, program)
		if err == nil {
			err = atOnce(len(tests), func(i int) error { return run.meetOne(ctx, &tests[i], sha256.Sum256(raw), kept) })
		}
		if err != nil {
			return err
		}
		slices.SortStableFunc(tests, func(a, b mutantTest) int { return cmp.Compare(a.took, b.took) })
		run.tests = append(run.tests, tests...)
	}
	return nil
}

// list returns the tests of a program.
func (run *mutantRun) list(ctx context.Context, program mutantProgram) (tests []mutantTest, err error) {
	r, err := run.start(ctx, buildTimeout, program, program.file, nil, "-test.list", program.pattern)
	if err == nil && !r.passed {
		err = fmt.Errorf("prove: %s lists no tests: %s", program.pkg, r.output)
	}
	for _, name := range strings.Fields(r.output) {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Example") || strings.HasPrefix(name, "Fuzz") {
			tests = append(tests, mutantTest{program: program, name: name})
		}
	}
	return tests, err
}

func (run *mutantRun) meetOne(ctx context.Context, t *mutantTest, program [32]byte, kept *results) error {
	r := mutantResult{Test: fmt.Sprintf("%s %s %x", t.program.pkg, t.name, program[:8])}
	if known, seen := kept.known[r.Test]; seen {
		t.met, t.took = known.Met, time.Duration(known.Seconds*float64(time.Second))
		return nil
	}
	file := t.program.file + "." + t.name
	result, err := run.start(ctx, mutantTimeout, t.program, t.program.file, []string{"RECOURSE_MUTANTS_MET=" + file}, "-test.run", "^"+t.name+"$")
	if err != nil || !result.passed { // a test that fails as the product is tells nothing of a mutant
		run.report(t.program.pkg+" "+t.name, "as the product is", true, result)
		return err
	}
	raw, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, line := range strings.Fields(string(raw)) {
		n, err := strconv.Atoi(line)
		if err != nil {
			return err
		}
		r.Met = append(r.Met, n)
	}
	t.met, t.took, r.Seconds = r.Met, result.took, result.took.Seconds()
	return kept.add(r)
}

// start runs a program. Its result has a verdict only if it does not end in time.
func (run *mutantRun) start(ctx context.Context, limit time.Duration, program mutantProgram, file string, env []string, args ...string) (runResult, error) {
	p := *run.prover
	p.env = append(slices.Clip(p.env), env...)
	took, output, err := p.command(ctx, limit, filepath.Join(p.root, program.pkg), file, append(args, "-test.count", "1")...)
	r := runResult{took: took, output: output, passed: err == nil, failed: errors.Is(err, errExit)}
	if errors.Is(err, errLimit) {
		r.verdict = timedOut
	}
	if r.failed || r.verdict != "" {
		err = nil
	}
	return r, err
}

// try runs the tests that meet a mutant until one fails with it. A result without a verdict proves nothing.
func (run *mutantRun) try(ctx context.Context, number int, m mutant) (mutantResult, error) {
	began := time.Now()
	r := mutantResult{Mutant: m.String(), Verdict: survived}
	if slices.ContainsFunc(equivalents, func(e equal) bool { return e.is(m) }) {
		r.Verdict = equivalent
		return r, nil
	}
	if _, is := run.compiled[number]; !is {
		r.Verdict = unbuilt
		return r, nil
	}
	for _, batch := range run.batches(number) {
		v, by, err := run.kill(ctx, number, batch)
		if err != nil {
			return r, err
		}
		if v != survived {
			r.Verdict, r.By = v, by
			run.noteKiller(m.File, by)
			break
		}
	}
	r.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	_, err := fmt.Fprintf(run.progress, "%6.1fs  %-21s %s\n", r.Seconds, r.Verdict, r.Mutant)
	return r, err
}

// noteKiller records that a test has killed a mutant of a file: it meets the others of the file first.
func (run *mutantRun) noteKiller(file, test string) {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.killers[file+" "+test] = true
}

// batches returns the tests that meet a mutant, as they are run at once, as many as take batchTime one after the other:
// those of the package first. Of other packages it returns as many as take doorTime, those that killed a mutant of
// the same file first and then the fastest.
func (run *mutantRun) batches(number int) (out [][]mutantTest) {
	var took time.Duration
	own, doors := run.meeting(number)
	for _, t := range append(own, doors...) {
		if len(out) == 0 || out[len(out)-1][0].program != t.program || took+t.took > batchTime {
			out, took = append(out, nil), 0
		}
		out[len(out)-1], took = append(out[len(out)-1], t), took+t.took
	}
	return out
}

// meeting returns the tests of batches.
func (run *mutantRun) meeting(number int) (own, doors []mutantTest) {
	file := run.compiled[number].File
	run.mu.Lock()
	defer run.mu.Unlock()
	var others []mutantTest
	for _, t := range run.tests {
		switch {
		case !slices.Contains(t.met, number):
		case t.program == run.programs[0]:
			own = append(own, t)
		case run.killers[file+" "+t.program.pkg+" "+t.name]:
			doors = append(doors, t)
		default:
			others = append(others, t)
		}
	}
	slices.SortStableFunc(others, func(a, b mutantTest) int { return cmp.Compare(a.took, b.took) })
	n, left := 0, doorTime
	for n < len(others) && others[n].took <= left {
		left -= others[n].took
		n++
	}
	others = others[:n]
	slices.SortStableFunc(others, func(a, b mutantTest) int { return cmp.Compare(a.program.file, b.program.file) })
	return own, append(doors, others...)
}

// doorTime bounds the tests of other packages that one mutant meets: a mutant of a statement meets all of them. One that
// survives may be killed by a test that it did not meet, so the score is at least what is written.
const doorTime = 90 * time.Second

// batchTime keeps a mutant that a fast test kills from waiting for the slow ones.
const batchTime = 5 * time.Second

// failedTest matches the name of a test that failed.
var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// kill runs tests with a mutant. If one fails, or they hang, it runs the same without the mutant: only if they pass
// then, the mutant is killed. It returns no verdict if they do not.
func (run *mutantRun) kill(ctx context.Context, number int, batch []mutantTest) (v verdict, by string, err error) {
	var names []string
	limit := 30 * time.Second
	for _, t := range batch {
		names, limit = append(names, t.name), limit+4*t.took
	}
	program := batch[0].program
	pattern := func(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }
	with, err := run.start(ctx, limit, program, program.file, []string{"RECOURSE_MUTANT=" + strconv.Itoa(number)}, "-test.failfast", "-test.run", pattern(names))
	if err != nil || with.passed {
		return survived, "", err
	}
	if failed := failedTest.FindStringSubmatch(with.output); failed != nil {
		names = failed[1:]
	}
	without, err := run.start(ctx, limit, program, program.file, nil, "-test.run", pattern(names))
	switch v = killed; {
	case err != nil || !without.passed:
		run.report(program.pkg+" "+pattern(names), "as the product is", true, without)
		v = ""
	case with.verdict == timedOut:
		v = hung
	}
	return v, program.pkg + " " + names[0], err
}

// mutantTimeout is within which a test ends as the product is.
const mutantTimeout = 4 * time.Minute

// detectorsOf returns the tests that meet a package: its own, and, by package, those that the table of guards names for its
// files with those of its public door.
func detectorsOf(pkg string) []Detector {
	tests := map[string][]string{}
	if pkg != settlementPackage && slices.Contains(mutated, pkg) { // settlement is pure: its own tests meet everything
		for _, door := range publicDoors {
			tests[door.Package] = []string{door.Test}
		}
	}
	for _, g := range Guards {
		name, _, _ := strings.Cut(g.CaughtBy.Test, "/")
		if name != "" && !strings.HasPrefix(g.CaughtBy.Package, "./internal/chaos") &&
			slices.ContainsFunc(g.Edits, func(e Edit) bool { return path.Dir(e.File) == pkg }) {
			tests[g.CaughtBy.Package] = append(tests[g.CaughtBy.Package], name)
		}
	}
	delete(tests, "./"+pkg)
	out := []Detector{{Package: "./" + pkg, Test: ".*"}}
	for _, other := range slices.Sorted(maps.Keys(tests)) {
		slices.Sort(tests[other])
		out = append(out, Detector{Package: other, Test: "(" + strings.Join(slices.Compact(tests[other]), "|") + ")"})
	}
	return out
}
