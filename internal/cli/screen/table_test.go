package screen

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func renderTable(width int, columns []Column, rows [][]string) string {
	var out bytes.Buffer
	(&Screen{out: &out, width: width}).Table(columns, rows)
	return out.String()
}

// Text from others cannot move the cursor or reverse the text direction.
func TestForeignTextCannotControlTheTerminal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		color      bool
		text, want string
	}{
		"clears the screen":        {false, "a\x1b[2Jb", "a\uFFFD[2Jb"},
		"clears it in one byte":    {false, "a\u009b2Jb", "a\uFFFD2Jb"},
		"writes over the line":     {true, "refused\rexecuted", "refused\uFFFDexecuted"},
		"turns the order":          {true, "a\u202ecba", "a\uFFFDcba"},
		"hides, where colours are": {true, "a\x1b[8mb", "a\uFFFD[8mb"},
		"a colour, where none are": {false, "\x1b[31mred\x1b[0m", "\uFFFD[31mred\uFFFD[0m"},
		"our colours":              {true, "\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"},
		"other writing":            {true, "שלום 退款 é\n", "שלום 退款 é\n"},
	} {
		var out bytes.Buffer
		if (&Screen{out: &out, width: 40, color: tc.color}).Command(tc.text); out.String() != "  "+tc.want+"\n" {
			t.Errorf("%s: %q, want %q", name, out.String(), tc.want)
		}
	}
}

func TestATableAlignsAndFits(t *testing.T) {
	t.Parallel()
	columns := []Column{{Name: "N", Right: true}, {Name: "Who", Optional: true}, {Name: "What", Wraps: true}}
	rows := [][]string{{"1", "somebody", "a few words that go on"}, {"10", "ä", "x"}}
	wide := " N  Who       What\n" +
		"──  ────────  ──────────────────────\n" +
		" 1  somebody  a few words that go on\n" +
		"10  ä         x\n"
	if got := renderTable(40, columns, rows); got != wide {
		t.Errorf("wide:\n%s", got)
	}
	narrow := " N  What\n" +
		"──  ─────────────\n" +
		" 1  a few words\n" +
		"    that go on\n" +
		"10  x\n" +
		"Not shown for\nwidth: Who\n(--json has\nthem).\n"
	if got := renderTable(17, columns, rows); got != narrow {
		t.Errorf("narrow:\n%s", got)
	}
	between := " N  Who       What\n" +
		"──  ────────  ────────────────────\n" +
		" 1  somebody  a few words that go\n" +
		"              on\n" +
		"10  ä         x\n"
	if got := renderTable(34, columns, rows); got != between {
		t.Errorf("between:\n%s", got)
	}
}

// A long value wraps; no other column is left out for it.
func TestLongTextsWrapBeforeColumnsAreLeftOut(t *testing.T) {
	t.Parallel()
	columns := []Column{{Name: "#", Right: true}, {Name: "What", Wraps: true}, {Name: "Why", Wraps: true, Optional: true}, {Name: "Receipt", Optional: true}}
	rows := [][]string{{"1", strings.Repeat("what ", 40), strings.Repeat("why ", 30), "opened"}}
	lines := func(width int) []string { return strings.Split(renderTable(width, columns, rows), "\n") }
	if got := lines(400); !strings.HasSuffix(got[2], "opened") || len(got) != 4 {
		t.Errorf("a wide screen: %q", got)
	}
	for _, width := range []int{44, 80, 140} {
		got := strings.Join(lines(width), "\n")
		if !strings.Contains(got, "Receipt") || !strings.Contains(got, "Why") || strings.Contains(got, "Not shown") {
			t.Errorf("%d columns:\n%s", width, got)
		}
		for _, line := range lines(width) {
			if displayWidth(line) > width {
				t.Errorf("%d columns: %q", width, line)
			}
		}
	}
	for width, left := range map[int]string{39: "Receipt", 30: "Why", 20: "Why, Receipt"} {
		got := renderTable(width, columns, rows)
		if said := strings.Join(strings.Fields(got), " "); !strings.HasSuffix(said, " Not shown for width: "+left+" (--json has them).") {
			t.Errorf("%d columns:\n%s", width, got)
		}
	}
}

// COLUMNS states the width of tables, and paragraphs stay readable.
func TestAScreenIsAsWideAsColumnsSays(t *testing.T) {
	for columns, want := range map[string]int{"230": 230, "80": 80, "7": minScreen, "x": defaultWidth, "": defaultWidth} {
		t.Setenv("COLUMNS", columns)
		if got := New(&bytes.Buffer{}).width; got != want {
			t.Errorf("COLUMNS=%s gives %d, want %d", columns, got, want)
		}
	}
	t.Setenv("COLUMNS", "230")
	var out bytes.Buffer
	New(&out).Text("%s", strings.Repeat("word ", 60))
	for line := range strings.SplitSeq(out.String(), "\n") {
		if displayWidth(line) > maxTextWidth {
			t.Errorf("%q", line)
		}
	}
}

func TestACellOfSeveralLinesStaysInItsColumn(t *testing.T) {
	t.Parallel()
	got := renderTable(80, []Column{{Name: "A"}, {Name: "B"}, {Name: "C"}}, [][]string{{"1", "x\nyy", "2"}})
	if want := "A  B   C\n─  ──  ─\n1  x   2\n   yy\n"; got != want {
		t.Errorf("\n%s", got)
	}
}

func TestLinesBreakBetweenWordsAndBehindMarks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in    string
		width int
		want  string
	}{
		{"", 5, ""},
		{"one two three", 7, "one two|three"},
		{"http.rate_limited", 14, "http.rate_|limited"},
		{"unbreakable", 4, "unbr|eaka|ble"},
		{"äöüß", 2, "äö|üß"},
		{"日本語", 4, "日本|語"},
		{"語", 1, "語"},
		{"a\n\nb", 5, "a||b"},
	} {
		if got := strings.Join(wrap(tc.in, tc.width), "|"); got != tc.want {
			t.Errorf("%q in %d: %q", tc.in, tc.width, got)
		}
	}
}

func FuzzWrappingLosesNothingButSpace(f *testing.F) {
	f.Add("one two three", 7)
	f.Add("http.rate_limited", 3)
	f.Fuzz(func(t *testing.T, s string, width int) {
		if !utf8.ValidString(s) || width < 1 || width > 200 || strings.Contains(s, "\x1b") {
			return
		}
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if got := squeeze(strings.Join(wrap(s, width), "\n")); got != squeeze(s) {
			t.Errorf("%q became %q", s, got)
		}
	})
}

func TestColoursDoNotCountAsWidth(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &Screen{out: &out, width: 80, color: true}
	s.Table([]Column{{Name: "A"}, {Name: "B"}}, [][]string{{s.Good("ok"), "1"}, {"no", "2"}})
	lines := strings.Split(escapeSequences.ReplaceAllString(out.String(), ""), "\n")
	if lines[2] != "ok  1" || lines[3] != "no  2" || !strings.Contains(out.String(), green) {
		t.Errorf("%q", out.String())
	}
}

type brokenPipe struct{ writes int }

func (b *brokenPipe) Write([]byte) (int, error) {
	b.writes++
	return 0, errors.New("broken pipe")
}

func TestTheFirstErrorOfWritingEndsAllWriting(t *testing.T) {
	t.Parallel()
	b := &brokenPipe{}
	s := New(b)
	s.Title("x")
	s.Text("y")
	if s.Err() == nil || b.writes != 1 {
		t.Errorf("%v after %d writes", s.Err(), b.writes)
	}
}
