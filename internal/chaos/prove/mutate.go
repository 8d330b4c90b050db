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
	"runtime"
	"slices"
	"sync"
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
	hung       verdict = "killed, for it hangs"
	survived   verdict = "SURVIVED"
	equivalent verdict = "equivalent"
)

// mutantResult is a line of the file of results: of a mutant, or of a test as the product is.
type mutantResult struct {
	Mutant  string  `json:"mutant,omitempty"`
	Verdict verdict `json:"verdict,omitempty"`
	By      string  `json:"by,omitempty"` // the test that killed it
	Test    string  `json:"test,omitempty"`
	Met     []int   `json:"met,omitempty"` // the mutants that change something in the test
	Seconds float64 `json:"seconds"`
}

func (r mutantResult) key() string { return r.Mutant + r.Test }

// results are those of earlier runs, and the file that gets those of this one.
type results struct {
	mu    sync.Mutex
	known map[string]mutantResult
	file  *os.File
}

func (r *results) add(one mutantResult) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return json.NewEncoder(r.file).Encode(one)
}

// Mutate changes conditions on money, one at a time, and runs the tests that meet the change: those of the package,
// those that the table of guards names for its files, and those of publicDoors. It writes the mutants that survived
// and the score to out, and reports whether none survived.
func Mutate(ctx context.Context, out, progress io.Writer, m Mutation) (ok bool, err error) {
	p, stop, err := newProver(ctx, progress)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	kept, err := openResults(m.Results)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, kept.file.Close()) }()
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
		s, err := p.mutatePackage(ctx, pkg, all, draw(all, m), kept, until)
		if err == nil {
			err = s.write(out)
		}
		if err != nil {
			return false, err
		}
		ok = ok && s.counts[survived] == 0
	}
	return ok, nil
}

// mutatePackage tries the mutants of some numbers, several at a time.
func (p *prover) mutatePackage(ctx context.Context, pkg string, all []mutant, drawn []int, kept *results, until time.Time) (score, error) {
	s := score{pkg: pkg, all: len(all), counts: map[verdict]int{}}
	switched := map[int]mutant{}
	for i, m := range all {
		switched[i+1] = m
	}
	run, err := p.buildMutants(ctx, pkg, switched)
	if err == nil {
		err = run.meet(ctx, kept)
	}
	if err != nil {
		return s, err
	}
	tried := make([]mutantResult, len(drawn))
	err = atOnce(len(drawn), func(i int) (err error) {
		m := all[drawn[i]-1]
		r, seen := kept.known[m.String()]
		switch {
		case seen:
			tried[i] = r
			run.noteKiller(m.File, r.By)
			return nil
		case time.Now().After(until):
			return nil
		}
		if tried[i], err = run.try(ctx, drawn[i], m); err != nil || tried[i].Verdict == "" {
			return err
		}
		return kept.add(tried[i])
	})
	for i, number := range drawn {
		s.add(all[number-1], tried[i])
	}
	return s, err
}

// atOnce calls a function for 0 to n-1, twice as many at a time as there are processors, until one fails.
func atOnce(n int, f func(int) error) error {
	var all sync.WaitGroup
	errs, slots := make(chan error, n), make(chan struct{}, 2*runtime.NumCPU())
	for i := range n {
		slots <- struct{}{}
		if len(errs) > 0 {
			break
		}
		all.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				errs <- err
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

// draw returns the numbers of the mutants to try, from 1, in the order of the seed.
func draw(all []mutant, m Mutation) []int {
	numbers := rand.New(rand.NewPCG(m.Seed, 3)).Perm(len(all))
	for i := range numbers {
		numbers[i]++
	}
	if m.Count > 0 {
		numbers = numbers[:min(m.Count, len(all))]
	}
	return numbers
}

// openResults reads the results of earlier runs, and opens the file to add to them.
func openResults(name string) (*results, error) {
	kept := &results{known: map[string]mutantResult{}}
	if name == "" {
		name = os.DevNull
	}
	var err error
	kept.file, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(kept.file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r mutantResult
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, errors.Join(fmt.Errorf("prove: %s: %w", name, err), kept.file.Close())
		}
		kept.known[r.key()] = r
	}
	return kept, lines.Err()
}

// score counts the verdicts of a package.
type score struct {
	pkg       string
	all, left int // mutants there are; that were drawn, and have no verdict
	counts    map[verdict]int
	survivors []string
}

func (s *score) add(m mutant, r mutantResult) {
	switch r.Verdict {
	case "":
		s.left++
		return
	case survived:
		s.survivors = append(s.survivors, m.String())
	}
	s.counts[r.Verdict]++
}

func (s *score) write(out io.Writer) error {
	slices.Sort(s.survivors)
	for _, survivor := range s.survivors {
		if _, err := fmt.Fprintln(out, "SURVIVED", survivor); err != nil {
			return err
		}
	}
	dead := s.counts[killed] + s.counts[hung]
	n := dead + s.counts[survived]
	_, err := fmt.Fprintf(out, "%s: %d of %d mutants killed (%.1f%%), %d of them by hanging, of %d that there are; %d do not compile, %d are equal to the product, %d have no verdict\n",
		s.pkg, dead, n, 100*float64(dead)/float64(max(n, 1)), s.counts[hung], s.all, s.counts[unbuilt], s.counts[equivalent], s.left)
	return err
}
