package prove

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const settlementPackage = "settlement"

// mutated are the packages whose conditions on money are changed, unless one is named.
var mutated = []string{settlementPackage, "background", "postadjudication/internal/casework", "postadjudication/internal/journal"}

// Mutation says which mutants are tried.
type Mutation struct {
	Packages []string      // none: all that decide about money
	Count    int           // of each package at most, drawn by the seed; 0: all
	Seed     uint64        // of the draw and the order
	Limit    time.Duration // no mutant is begun later
	Results  string        // file of results, one JSON object a line: what it has is not tried again; "" for none
}

// The verdicts of mutants. One that does not compile, and one that is equal to the product, does not count.
const (
	killed     verdict = "killed"
	survived   verdict = "SURVIVED"
	equivalent verdict = "equivalent"
)

// mutantResult is a line of the file of results.
type mutantResult struct {
	Mutant  string  `json:"mutant"`
	Verdict verdict `json:"verdict"`
	By      string  `json:"by,omitempty"` // the tests that killed it
	Seconds float64 `json:"seconds"`
}

// Mutate changes conditions on money, one at a time, and runs the tests of the package, then those that the table
// of guards names for the file, then those of publicDoors. It writes the mutants that survived and the score to out, and reports whether none
// survived.
func Mutate(ctx context.Context, out, progress io.Writer, m Mutation) (ok bool, err error) {
	p, stop, err := newProver(ctx, progress)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	known, keep, err := openResults(m.Results)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, keep.Close()) }()
	if len(m.Packages) == 0 {
		m.Packages = mutated
	}
	ok = true
	until := time.Now().Add(m.Limit)
	for _, pkg := range m.Packages {
		all, err := mutants(p.root, pkg)
		if err != nil {
			return false, err
		}
		if len(all) == 0 {
			return false, fmt.Errorf("prove: package %s has no condition on money", pkg)
		}
		s := score{pkg: pkg, all: len(all), counts: map[verdict]int{}}
		for _, one := range draw(all, m) {
			result, seen := known[one.String()]
			if !seen && time.Now().After(until) {
				s.left++
				continue
			}
			if !seen {
				if result, err = p.tryMutant(ctx, pkg, one); err != nil {
					return false, err
				}
				if err := json.NewEncoder(keep).Encode(result); err != nil {
					return false, err
				}
			}
			s.add(one, result)
		}
		if err := s.write(out); err != nil {
			return false, err
		}
		ok = ok && s.counts[survived] == 0
	}
	return ok, nil
}

// draw returns the mutants to try, in the order of the seed.
func draw(all []mutant, m Mutation) []mutant {
	all = slices.Clone(all)
	rng := rand.New(rand.NewPCG(m.Seed, 3))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if m.Count > 0 {
		all = all[:min(m.Count, len(all))]
	}
	return all
}

// openResults reads the results of earlier runs, and opens the file to add to them.
func openResults(name string) (map[string]mutantResult, *os.File, error) {
	known := map[string]mutantResult{}
	if name == "" {
		name = os.DevNull
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r mutantResult
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("prove: %s: %w", name, err), f.Close())
		}
		known[r.Mutant] = r
	}
	return known, f, lines.Err()
}

// publicDoors are the tests that meet a package's conditions on money through another package.
var publicDoors = map[string]Detector{
	"postadjudication/internal/casework": {Package: "./postadjudication", Test: "Test.*(Paid|Payment|Finding|Fork|Lookup|Call|Cancel|Letter|Unknown|Answer|Generation|Executed|Reservation).*"},
}

// tryMutant runs the tests of the package, then those of the guards of its file, then those of its public door, until one fails.
func (p *prover) tryMutant(ctx context.Context, pkg string, m mutant) (mutantResult, error) {
	began := time.Now()
	r := mutantResult{Mutant: m.String(), Verdict: survived}
	if slices.ContainsFunc(equivalents, func(e equal) bool { return e.is(m) }) {
		r.Verdict = equivalent
		return r, nil
	}
	dir, err := os.MkdirTemp(p.dir, "mutant-")
	if err != nil {
		return r, err
	}
	overlay, err := m.overlay(p.root, dir)
	if err != nil {
		return r, err
	}
	tests := append([]Detector{{Package: "./" + pkg, Test: ".*"}}, detectorsOf(m.File)...)
	if door, is := publicDoors[pkg]; is {
		tests = append(tests, door)
	}
	for _, c := range tests {
		if err := p.baselineOf(ctx, c); err != nil {
			return r, err
		}
		result, err := p.runTests(ctx, c, overlay)
		if err != nil {
			return r, err
		}
		switch {
		case result.verdict == unbuilt:
			r.Verdict = unbuilt
		case result.failed, result.verdict == timedOut:
			r.Verdict, r.By = killed, c.String()
		default:
			continue
		}
		break
	}
	r.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	_, err = fmt.Fprintf(p.progress, "%6.1fs  %-14s %s\n", r.Seconds, r.Verdict, r.Mutant)
	return r, err
}

// detectorsOf returns the tests that the table of guards names for a file, by package.
func detectorsOf(file string) (out []Detector) {
	tests := map[string][]string{}
	for _, g := range Guards {
		if g.CaughtBy.Test == "" || strings.HasPrefix(g.CaughtBy.Package, "./internal/chaos") ||
			!slices.ContainsFunc(g.Edits, func(e Edit) bool { return e.File == file }) {
			continue
		}
		name, _, _ := strings.Cut(g.CaughtBy.Test, "/")
		tests[g.CaughtBy.Package] = append(tests[g.CaughtBy.Package], name)
	}
	for pkg, names := range tests {
		slices.Sort(names)
		out = append(out, Detector{Package: pkg, Test: "(" + strings.Join(slices.Compact(names), "|") + ")"})
	}
	slices.SortFunc(out, func(a, b Detector) int { return strings.Compare(a.Package, b.Package) })
	return out
}

// baselineOf returns an error unless tests pass as the product is. It runs them once.
func (p *prover) baselineOf(ctx context.Context, c Detector) error {
	v, seen := p.baseline[c.String()]
	if !seen {
		result, err := p.runTests(ctx, c, "")
		if err != nil {
			return err
		}
		if v = caught; !result.passed {
			v = alreadyFailing
			p.report(c.String(), "as the product is", true, result)
		}
		p.baseline[c.String()] = v
	}
	if v != caught {
		return fmt.Errorf("prove: %s does not pass as the product is", c)
	}
	return nil
}

// runTests builds the tests of a package, with an overlay or without, and runs those of a pattern until one fails.
func (p *prover) runTests(ctx context.Context, c Detector, overlay string) (runResult, error) {
	binary := filepath.Join(p.dir, detectorBinary)
	if r, err := p.build(ctx, c, overlay, binary); err != nil || r.verdict != "" {
		return r, err
	}
	took, output, err := p.command(ctx, mutantTimeout, filepath.Join(p.root, c.Package), binary, "-test.failfast", "-test.count", "1", "-test.run", "^"+c.Test+"$")
	r := runResult{took: took, output: output, passed: err == nil, failed: errors.Is(err, errExit)}
	switch {
	case errors.Is(err, errLimit):
		r.verdict = timedOut
	case err != nil && !r.failed:
		return r, err
	}
	return r, nil
}

// mutantTimeout is within which the tests of a mutant end; a mutant that hangs is killed.
const mutantTimeout = 4 * time.Minute

// score counts the verdicts of a package.
type score struct {
	pkg       string
	all, left int // mutants there are; that were drawn, and not tried in time
	counts    map[verdict]int
	survivors []string
}

func (s *score) add(m mutant, r mutantResult) {
	s.counts[r.Verdict]++
	if r.Verdict == survived {
		s.survivors = append(s.survivors, m.String())
	}
}

func (s *score) write(out io.Writer) error {
	slices.Sort(s.survivors)
	for _, survivor := range s.survivors {
		if _, err := fmt.Fprintln(out, "SURVIVED", survivor); err != nil {
			return err
		}
	}
	n := s.counts[killed] + s.counts[survived]
	_, err := fmt.Fprintf(out, "%s: %d of %d mutants killed (%.1f%%), of %d that there are; %d do not compile, %d are equal to the product, %d were not tried\n",
		s.pkg, s.counts[killed], n, 100*float64(s.counts[killed])/float64(max(n, 1)), s.all, s.counts[unbuilt], s.counts[equivalent], s.left)
	return err
}
