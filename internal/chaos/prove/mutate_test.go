package prove

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
		got = append(got, fmt.Sprintf("%d %s: %s -> %s", m.Line, m.Kind, m.Text, m.with))
	}
	want := []string{
		"4 inverted: s.Paid > 0 && open -> !(s.Paid > 0 && open)",
		"4 never true: s.Paid > 0 && open -> ((s.Paid > 0 && open) && false)",
		"4 always true: s.Paid > 0 -> ((s.Paid > 0) || true)",
		"5 without assignment: s.Reserved -> _",
		"6 without assignment: s.Moved +=  -> _ = ",
		"9 never true: s.Paid == 0 || open -> ((s.Paid == 0 || open) && false)",
		"9 never true: s.Paid == 0 -> ((s.Paid == 0) && false)",
		"13 without a case value: , unknown -> ",
		"14 without the element: Paid: 1,  -> ",
		"15 without the case: case absent: -> ",
		"20 without the AND: head = $3 -> (head = $3 OR true)",
		"21 without the AND: (unknown_open = 0 OR live) -> ((unknown_open = 0 OR live) OR true)",
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
	names := func(m Mutation) (out []string) {
		for _, one := range draw(all, m) {
			out = append(out, one.String())
		}
		return out
	}
	if a, b, c := names(Mutation{Count: 9, Seed: 4}), names(Mutation{Count: 9, Seed: 4}), names(Mutation{Count: 9, Seed: 5}); len(a) != 9 || !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Errorf("%q, %q, %q", a, b, c)
	}
}

// A mutant is killed by a test, or survives, or does not count.
func TestTheVerdictsOfMutants(t *testing.T) {
	t.Parallel()
	p := &prover{root: mustAbs(t, root), dir: t.TempDir(), env: os.Environ(), progress: t.Output(), baseline: map[string]verdict{}}
	s := score{pkg: "retrypolicy", all: 9, left: 1, counts: map[verdict]int{}}
	const file, original = "retrypolicy/delay.go", "d *= p.Coefficient"
	for with, want := range map[string]verdict{"d *= 1 + 0*p.Coefficient": killed, "d = d * p.Coefficient": survived, "d *= p.Coefficients": unbuilt} {
		raw, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(string(raw), original)
		m := mutant{File: file, Line: 1, Kind: inverted, Text: with, from: at, to: at + len(original), with: with}
		r, err := p.tryMutant(t.Context(), "retrypolicy", m)
		if err != nil || r.Verdict != want {
			t.Errorf("%s: %+v, %v; want %s", with, r, err, want)
		}
		s.add(m, r)
	}
	var out bytes.Buffer
	if err := s.write(&out); err != nil || out.String() != "SURVIVED retrypolicy/delay.go:1  inverted: d = d * p.Coefficient\nretrypolicy: 1 of 2 mutants killed (50.0%), of 9 that there are; 1 do not compile, 0 are equal to the product, 1 were not tried\n" {
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
	known, f, err := openResults(name)
	if err != nil || len(known) != 1 || known["a"].Verdict != killed {
		t.Fatalf("%v, %v", known, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := openResults(filepath.Join(name, "not-a-folder")); err == nil {
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
