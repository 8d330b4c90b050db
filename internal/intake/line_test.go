package intake_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/settlement"
	"github.com/recourse-dev/recourse/testdata"
)

const good = `{"transaction_receipt_id":"txr_1","submission_receipt_id":"sub_1","adjudication_id":"adj_1","tenant":"acme",` +
	`"escrow_reference":"esc_1","outcome":"release","amount":{"minor":12500,"currency":"USD"},"held":{"minor":50000,"currency":"USD"}%s}`

// with returns a valid line with more members.
func with(more string) string { return fmt.Sprintf(good, more) }

// instead returns a valid line with one text replaced.
func instead(old, new string) string { return strings.Replace(with(""), old, new, 1) }

func read(t *testing.T, in io.Reader) []intake.Line {
	t.Helper()
	var out []intake.Line
	for l, err := range intake.Lines(in) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

func TestAGoodLineIsReadInFull(t *testing.T) {
	t.Parallel()
	line := with(`,"generation":3,"target":"north","payload":{"note":"x"},"simulate":["retryable","ok"]`)
	got := read(t, strings.NewReader(line))
	usd := func(n int64) settlement.Money { return settlement.Money{Minor: n, Currency: "USD"} }
	want := []intake.Line{{Number: 1, Adjudication: postadjudication.Adjudication{
		Instruction: settlement.Instruction{Tenant: "acme", TransactionReceiptID: "txr_1", SubmissionReceiptID: "sub_1", AdjudicationID: "adj_1",
			EscrowReference: "esc_1", Outcome: settlement.Release, Generation: 3, Amount: usd(12500), Held: usd(50000)},
		Target: "north", Payload: []byte(`{"note":"x","simulate":["retryable","ok"]}`),
	}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestWhatIsLeftOutHasItsDefault(t *testing.T) {
	t.Parallel()
	got := read(t, strings.NewReader(with("")))
	if len(got) != 1 || len(got[0].Problems) > 0 || got[0].Adjudication.Generation != 1 || got[0].Adjudication.Payload != nil {
		t.Errorf("%+v", got)
	}
}

func TestABadLineIsRefusedNamingTheField(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)
	for name, tc := range map[string]struct{ line, field, problem string }{
		"unknown member":          {with(`,"priority":1`), "priority", "not a known member"},
		"other case":              {instead(`"tenant"`, `"Tenant"`), "Tenant", "not a known member"},
		"unknown within amount":   {instead(`"currency":"USD"`, `"currency":"USD","scale":2`), "amount.scale", "not a known member"},
		"given twice":             {with(`,"tenant":"b"`), "tenant", "given twice"},
		"twice by escape":         {with(`,"ten\u0061nt":"b"`), "tenant", "given twice"},
		"twice within":            {instead(`"minor":12500`, `"minor":1,"minor":2`), "amount.minor", "given twice"},
		"twice deep in payload":   {with(`,"payload":{"a":[{"b":1,"b":2}]}`), "payload.a.b", "given twice"},
		"twice the empty name":    {with(`,"payload":{"":1,"":2}`), `payload.""`, "given twice"},
		"cut off":                 {with("")[:80], "", "ends too early"},
		"broken":                  {instead(`"acme"`, `acme`), "", "at byte"},
		"something after the end": {with("") + "{}", "", "after its end"},
		"list":                    {"[" + with("") + "]", "", "must be an object, is a list"},
		"null":                    {"null", "", "must be an object, is null"},
		"fraction":                {instead(`12500`, `12500.5`), "amount.minor", "whole number within 64 bits, is 12500.5"},
		"fraction of zero":        {instead(`12500`, `12500.0`), "amount.minor", "is 12500.0"},
		"power of ten":            {instead(`12500`, `1e3`), "amount.minor", "is 1e3"},
		"beyond 64 bits":          {instead(`12500`, `99999999999999999999`), "amount.minor", "64 bits"},
		"beyond exact":            {instead(`12500`, `9007199254740992`), "amount.minor", "not between"},
		"text for a number":       {instead(`12500`, `"12500"`), "amount.minor", "is a string"},
		"null for a number":       {instead(`12500`, `null`), "amount.minor", "is null"},
		"null for text":           {instead(`"acme"`, `null`), "tenant", "must be a string, is null"},
		"number for text":         {instead(`"acme"`, `7`), "tenant", "must be a string, is a number"},
		"money as text":           {instead(`{"minor":12500,"currency":"USD"}`, `"125.00 USD"`), "amount", "must be an object, is a string"},
		"payload as list":         {with(`,"payload":[]`), "payload", "must be an object, is a list"},
		"simulate as number":      {with(`,"simulate":4`), "simulate", "a string or a list of strings"},
		"simulate with null":      {with(`,"simulate":["ok",null]`), "simulate", "has null"},
		"simulate twice":          {with(`,"simulate":"ok","payload":{"simulate":"ok"}`), "simulate", "both"},
		"half a surrogate":        {instead(`"acme"`, `"a\ud800"`), "tenant", "surrogate"},
		"not UTF-8":               {instead(`acme`, "ac\xffme"), "", "not UTF-8"},
		"missing":                 {instead(`"adjudication_id":"adj_1",`, ``), "adjudication_id", "not given"},
		"zero generation":         {with(`,"generation":0`), "generation", "not between"},
		"bad outcome":             {instead(`release`, `chargeback`), "outcome", ""},
		"more than is held":       {instead(`12500`, `50001`), "amount.minor", "more than is held"},
		"secret":                  {with(`,"payload":{"card":"4242424242424242"}`), "payload.card", "secret"},
		"deep":                    {with(`,"payload":` + deep), "", ""},
	} {
		lines := read(t, strings.NewReader(tc.line+"\n"+with("")+"\n"))
		if len(lines) != 2 || len(lines[1].Problems) > 0 || lines[1].Number != 2 {
			t.Errorf("%s: the line after it was not read: %+v", name, lines)
			continue
		}
		if len(lines[0].Problems) == 0 {
			t.Errorf("%s: accepted", name)
			continue
		}
		if lines[0].Unsafe != (name == "secret") {
			t.Errorf("%s: unsafe is %t", name, lines[0].Unsafe)
		}
		p := lines[0].Problems[0]
		if p.Line != 1 || tc.problem+tc.field != "" && p.Field != tc.field || !strings.Contains(p.Problem, tc.problem) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestEveryProblemOfALineIsNamed(t *testing.T) {
	t.Parallel()
	lines := read(t, strings.NewReader(`{"tenant":"acme"}`))
	fields := map[string]bool{}
	for _, p := range lines[0].Problems {
		fields[p.Field] = true
	}
	for _, f := range []string{"transaction_receipt_id", "submission_receipt_id", "adjudication_id", "escrow_reference", "outcome", "amount.minor", "held.currency"} {
		if !fields[f] {
			t.Errorf("%s is not named in %v", f, lines[0].Problems)
		}
	}
}

func TestALineThatIsTooLongStopsNothing(t *testing.T) {
	t.Parallel()
	exactly := with(`,"payload":{"a":""}`)
	fits := strings.Replace(exactly, `"a":""`, `"a":"`+strings.Repeat("x", 1000)+`"`, 1)
	fits += strings.Repeat(" ", intake.MaxLine-len(fits))
	over := fits + " "
	long := with(`,"payload":{"a":"` + strings.Repeat("x", 5*intake.MaxLine) + `"}`)
	lines := read(t, iotest.OneByteReader(strings.NewReader(strings.Join([]string{fits, over, long, with("")}, "\n"))))
	if len(lines) != 4 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, bad := range []bool{false, true, true, false} {
		if (len(lines[i].Problems) > 0) != bad || lines[i].Number != i+1 {
			t.Errorf("line %d: %v", i+1, lines[i].Problems)
		}
	}
}

func TestBlankLinesAndLineEndsAreNoLines(t *testing.T) {
	t.Parallel()
	lines := read(t, strings.NewReader("\n\r\n  \t\n"+with("")+"\r\n\n"+with("")))
	if len(lines) != 2 || lines[0].Number != 4 || lines[1].Number != 6 || len(lines[0].Problems)+len(lines[1].Problems) > 0 {
		t.Errorf("%+v", lines)
	}
	if got := read(t, strings.NewReader("")); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestAnErrorOfReadingEndsTheLines(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk gone")
	var got error
	for l, err := range intake.Lines(io.MultiReader(strings.NewReader(with("")+"\n"), iotest.ErrReader(broken))) {
		if err == nil && len(l.Problems) > 0 {
			t.Errorf("%+v", l)
		}
		got = err
	}
	if !errors.Is(got, broken) || !strings.Contains(got.Error(), "line 2") {
		t.Errorf("%v", got)
	}
}

func TestTheShippedFileIsMostlyGood(t *testing.T) {
	t.Parallel()
	good, bad := 0, 0
	for _, l := range read(t, strings.NewReader(string(testdata.Adjudications))) {
		if len(l.Problems) > 0 {
			bad++
		} else {
			good++
		}
	}
	if good < 300 || bad < 10 {
		t.Errorf("%d good, %d bad", good, bad)
	}
}

func FuzzALineIsReadableOrSaysWhyNot(f *testing.F) {
	for _, seed := range []string{with(""), with(`,"simulate":"ok"`), `{`, `{"payload":{"a":[[{}]]}}`, "\xff\n{}", `{"a":1,"a":2}`, "[]\n\n" + with("")} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		last := 0
		for l, err := range intake.Lines(strings.NewReader(string(in))) {
			if err != nil {
				t.Fatal(err)
			}
			if l.Number <= last {
				t.Fatalf("line %d after line %d", l.Number, last)
			}
			last = l.Number
			if len(l.Problems) > 0 {
				continue
			}
			if err := l.Adjudication.Validate(); err != nil {
				t.Errorf("line %d was let pass: %v", l.Number, err)
			}
		}
	})
}
