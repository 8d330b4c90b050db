package screen_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/screen"
)

var (
	manyColumns = []screen.Column{{Name: "Run"}, {Name: "Reserved", Right: true}, {Name: "Transaction"}, {Name: "Why", Wraps: true}}
	manyRows    = [][]string{
		{"01a2222d-0000-7000-8000-000000000001", "125.00 USD", "txr_" + strings.Repeat("7", 30), "the account is closed, says the bank"},
		{"01a2222d-0000-7000-8000-000000000002", "1.00 USD", "", "one\ntwo"},
	}
)

func drawn(t *testing.T, columns string, of []screen.Column, rows [][]string) string {
	t.Helper()
	t.Setenv("COLUMNS", columns)
	var out bytes.Buffer
	s := screen.New(&out)
	s.Table(of, rows)
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A column that is too wide for the screen stands below each row, whole, so that an id can be copied.
func TestAColumnThatIsTooWideStandsBelowEachRow(t *testing.T) {
	const at80 = "  Reserved  Transaction                         Why\n" +
		"──────────  ──────────────────────────────────  ────────────────────────────────\n" +
		"125.00 USD  txr_777777777777777777777777777777  the account is closed, says the\n" +
		"                                                bank\n" +
		"   Run 01a2222d-0000-7000-8000-000000000001\n" +
		"  1.00 USD                                      one\n" +
		"                                                two\n" +
		"   Run 01a2222d-0000-7000-8000-000000000002\n"
	if got := drawn(t, "80", manyColumns, manyRows); got != at80 {
		t.Errorf("\n%s", got)
	}
	const at60 = "  Reserved  Why\n" +
		"──────────  ────────────────────────────────────\n" +
		"125.00 USD  the account is closed, says the bank\n" +
		"   Run 01a2222d-0000-7000-8000-000000000001\n" +
		"   Transaction txr_777777777777777777777777777777\n" +
		"  1.00 USD  one\n" +
		"            two\n" +
		"   Run 01a2222d-0000-7000-8000-000000000002\n"
	if got := drawn(t, "60", manyColumns, manyRows); got != at60 {
		t.Errorf("\n%s", got)
	}
}

// No text and no number of columns makes a line longer than the screen.
func TestNoLineOfATableIsLongerThanTheScreen(t *testing.T) {
	long := strings.Repeat("x", 200)
	for name, of := range map[string][]screen.Column{
		"one":              {{Name: "A"}},
		"one of numbers":   {{Name: "A", Right: true}},
		"many":             {{Name: "A"}, {Name: "B", Wraps: true}, {Name: "C", Right: true}, {Name: "D", Optional: true}, {Name: "E", Wraps: true}, {Name: "F", Wraps: true}, {Name: "G", Wraps: true}, {Name: "H", Wraps: true}},
		"with a long name": {{Name: strings.Repeat("name ", 20)}, {Name: "B"}},
	} {
		row := make([]string, len(of))
		for i := range row {
			row[i] = long
		}
		got := drawn(t, "60", of, [][]string{row, row})
		if n := strings.Count(got, "x"); n < 2*200*len(of)-2*200 {
			t.Errorf("%s: %d characters are left of the cells:\n%s", name, n, got)
		}
		for line := range strings.SplitSeq(got, "\n") {
			if len([]rune(line)) > 60 {
				t.Errorf("%s: %q", name, line)
			}
		}
	}
}

// Without a terminal a table has all columns, however wide they are.
func TestATableIsWholeWithoutATerminal(t *testing.T) {
	columns := append([]screen.Column{{Name: "Signature", Optional: true}}, manyColumns...)
	got := drawn(t, "", columns, [][]string{append([]string{strings.Repeat("s", 100)}, manyRows[0]...)})
	first, _, _ := strings.Cut(got, "\n")
	if strings.Join(strings.Fields(first), " ") != "Signature Run Reserved Transaction Why" || strings.Contains(got, "Not shown") || !strings.Contains(got, manyRows[0][0]+"  125.00 USD  txr_") {
		t.Errorf("\n%s", got)
	}
}
