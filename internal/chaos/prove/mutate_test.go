package prove

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const mutatedSource = "package p\n" + `
func f(s state, open bool) (state, error) {
	if s.Paid > 0 && open {
		s.Reserved, s.other = 0, 1
		s.Moved += s.Paid
	}
	switch {
	case s.Paid == 0 || open:
		return s, nil
	}
	switch s.Class {
	case executed, unknown:
		return state{Paid: 1, other: 2}, nil
	case absent:
	}
	if open { // not of money
		s.other = 3
	}
	return s, exec(` + "`UPDATE cases SET paid = $1 WHERE id = $2 AND head = $3 AND color = $4\n\tAND (unknown_open = 0 OR live) RETURNING id`" + `)
}
`

// Each condition, operand, case, assignment and guard that is about money gives its mutants, and nothing else does.
func TestTheMutantsOfAPackage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"p.go": mutatedSource, "p_test.go": "package p\n\nfunc init() { if paid { panic(1) } }\n"} {
		if err := os.MkdirAll(filepath.Join(dir, "p"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "p", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := mutants(dir, "p")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, fmt.Sprintf("%d %s: %s", m.Line, m.Kind, strings.Join(strings.Fields(m.Text), " ")))
	}
	want := []string{
		"4 inverted: s.Paid > 0 && open",
		"4 never true: s.Paid > 0 && open",
		"4 always true: s.Paid > 0",
		"5 without assignment: s.Reserved",
		"6 without assignment: s.Moved",
		"9 never true: s.Paid == 0 || open",
		"9 never true: s.Paid == 0",
		"13 without a case value: executed",
		"13 without a case value: unknown",
		"15 without the case: case absent:",
		"14 without the element: Paid: 1",
		"20 without the AND: head = $3",
		"21 without the AND: (unknown_open = 0 OR live)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The seed alone decides which mutants are tried.
func TestTheSeedDrawsTheMutants(t *testing.T) {
	t.Parallel()
	all, err := mutants(root, settlementPackage)
	if err != nil || len(all) < 80 {
		t.Fatalf("%d mutants, %v", len(all), err)
	}
	of := func(seed uint64) []int { return draw(all, Mutation{Count: 9, Seed: seed}) }
	if a, b, c := of(4), of(4), of(5); len(a) != 9 || !slices.Equal(a, b) || slices.Equal(a, c) || slices.Min(a) < 1 {
		t.Errorf("%v, %v, %v", a, b, c)
	}
}

// A mutant is killed by a test, or survives, or does not count. All are in one program, and those of one place do not disturb each other.
func TestTheVerdictsOfMutants(t *testing.T) {
	t.Parallel()
	p := &prover{root: mustAbs(t, root), dir: t.TempDir(), env: os.Environ(), progress: t.Output(), baseline: map[string]verdict{}}
	const file = "retrypolicy/delay.go"
	raw, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	var all []mutant
	for text, afters := range map[string][]string{
		"p.Coefficient; ": {" * map[bool]float64{false: 1}[mutantIs(%d)])", " + map[bool]float64{}[mutantIs(%d)])", " * map[bool]float64{true: 2, false: 1}[mutantIs(%d)])"},
		"longest := ":     {"undefined)"},
	} {
		from := strings.Index(string(raw), text)
		for _, after := range afters {
			to := from + len(text) - len("; ")
			all = append(all, mutant{File: file, Line: 1 + strings.Count(string(raw[:from]), "\n"), Kind: inverted, Text: after, from: from, to: to, before: "(", after: after})
		}
	}
	kept, err := openResults("")
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.mutatePackage(t.Context(), "retrypolicy", all, []int{1, 2, 3, 4}, kept, time.Now().Add(time.Hour))
	if err := errors.Join(err, kept.file.Close()); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.write(&out); err != nil || out.String() != "SURVIVED retrypolicy/delay.go:31  inverted: + map[bool]float64{}[mutantIs(%d)])\nretrypolicy: 2 of 3 mutants killed (66.7%), 0 of them by hanging, of 4 that there are; 1 do not compile, 0 are equal to the product, 0 have no verdict\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// A later run takes the results of earlier ones from the file, and adds its own.
func TestTheResultsOfMutantsAreKept(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "results.jsonl")
	if err := os.WriteFile(name, []byte(`{"mutant":"a","verdict":"killed","seconds":1}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := openResults(name)
	if err != nil || len(kept.known) != 1 || kept.known["a"].Verdict != killed {
		t.Fatalf("%v, %v", kept, err)
	}
	if err := errors.Join(kept.add(mutantResult{Mutant: "b", Verdict: survived}), kept.file.Close()); err != nil {
		t.Error(err)
	}
	if kept, err = openResults(name); err != nil || len(kept.known) != 2 || kept.file.Close() != nil {
		t.Errorf("%v, %v", kept, err)
	}
	if _, err := openResults(filepath.Join(name, "not-a-folder")); err == nil {
		t.Error("no error")
	}
}

// A change that no test can tell from the product says why, and is still there.
func TestEveryEquivalentMutantExists(t *testing.T) {
	t.Parallel()
	for _, e := range equivalents {
		all, err := mutants(root, filepath.ToSlash(filepath.Dir(e.File)))
		if err != nil || e.Why == "" || !slices.ContainsFunc(all, e.is) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}
