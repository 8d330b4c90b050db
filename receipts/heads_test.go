package receipts_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/receipts"
)

func headsOfTwo(t testing.TB) receipts.Heads {
	t.Helper()
	_, head1 := chained(t, numberedCase(1), sampleDrafts()...)
	_, head2 := chained(t, numberedCase(2), sampleDrafts()[:2]...)
	return receipts.Heads{numberedCase(1): head1, numberedCase(2): head2}
}

const oneHead = "recourse heads 1\n01934b2e-7c00-7abc-8def-0123456789ab 8 GG9qlEjrOsMjZYdFBLHZqTID53+YPDNLbl4BbJUOANY=\n"

func TestHeadsTextIsGolden(t *testing.T) {
	t.Parallel()
	_, head := chained(t, testCase, sampleDrafts()...)
	got, err := receipts.Heads{testCase: head}.MarshalText()
	if err != nil || string(got) != oneHead {
		t.Errorf("%v\n%swant\n%s", err, got, oneHead)
	}
}

func TestHeadsReadBack(t *testing.T) {
	t.Parallel()
	for _, heads := range []receipts.Heads{{}, headsOfTwo(t)} {
		text, err := heads.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got receipts.Heads
		err = got.UnmarshalText(text)
		if err != nil || !reflect.DeepEqual(got, heads) {
			t.Errorf("%s reads back as %v, %v", text, got, err)
		}
	}
}

func TestAHeadWithoutReceiptsIsNotWritten(t *testing.T) {
	t.Parallel()
	for _, seq := range []int64{0, -1, receipts.MaxInteger + 1} {
		if text, err := (receipts.Heads{testCase: {Seq: seq}}).MarshalText(); err == nil {
			t.Errorf("sequence %d: %s", seq, text)
		}
	}
}

func TestOtherHeadsTextsAreRefusedNamingTheLine(t *testing.T) {
	t.Parallel()
	text, err := headsOfTwo(t).MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	for name, test := range map[string]struct{ text, part string }{
		"empty":            {"", "line 1"},
		"title cut":        {"recourse heads 1", "line 1"},
		"later version":    {strings.Replace(oneHead, "heads 1", "heads 2", 1), "line 1"},
		"title with CR":    {strings.Replace(oneHead, "\n", "\r\n", 1), "line 1"},
		"last line cut":    {strings.TrimSuffix(oneHead, "\n"), "line 2: cut off"},
		"empty line":       {oneHead + "\n", "line 3"},
		"order":            {lines[0] + lines[2] + lines[1], "line 3: case out of order"},
		"repeated":         {lines[0] + lines[1] + lines[1], "line 3: case out of order"},
		"two spaces":       {strings.Replace(oneHead, " 8 ", "  8 ", 1), "line 2"},
		"trailing space":   {strings.Replace(oneHead, "=\n", "= \n", 1), "line 2"},
		"sequence 0":       {strings.Replace(oneHead, " 8 ", " 0 ", 1), "not a sequence"},
		"sequence +8":      {strings.Replace(oneHead, " 8 ", " +8 ", 1), "one way"},
		"sequence 08":      {strings.Replace(oneHead, " 8 ", " 08 ", 1), "one way"},
		"sequence 2^53":    {strings.Replace(oneHead, " 8 ", " 9007199254740992 ", 1), "not a sequence"},
		"upper case":       {strings.Replace(oneHead, "01934b2e", "01934B2E", 1), "one way"},
		"not a case":       {strings.Replace(oneHead, "01934b2e", "x1934b2e", 1), "not a UUID"},
		"short link":       {strings.Replace(oneHead, "GG9q", "", 1), "not a link"},
		"link bits beyond": {strings.Replace(oneHead, "ANY=", "ANZ=", 1), "one way"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var heads receipts.Heads
			err := heads.UnmarshalText([]byte(test.text))
			if heads != nil {
				t.Errorf("heads %v", heads)
			}
			wantError(t, err, test.part)
		})
	}
}

func FuzzUnmarshalTextAcceptsOnlyWhatMarshalTextWrites(f *testing.F) {
	f.Add([]byte(oneHead))
	f.Add([]byte("recourse heads 1\n"))
	two, err := headsOfTwo(f).MarshalText()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(two)
	f.Fuzz(func(t *testing.T, text []byte) {
		var heads receipts.Heads
		err := heads.UnmarshalText(text)
		if err != nil {
			return
		}
		again, err := heads.MarshalText()
		if err != nil || string(again) != string(text) {
			t.Fatalf("accepted %q, writes %q, %v", text, again, err)
		}
	})
}
