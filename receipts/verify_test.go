package receipts_test

import (
	"errors"
	"iter"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

func TestUntouchedChainVerifies(t *testing.T) {
	t.Parallel()
	rs, head := chained(t, testCase, sampleDrafts()...)
	for _, v := range []receipts.Verifier{{}, {Expected: receipts.Heads{testCase: head}}} {
		got, err := v.Verify(testCase, rs)
		if err != nil || got != head {
			t.Errorf("head %v, %v", got, err)
		}
	}
	if got, err := (receipts.Verifier{}).Verify(testCase, nil); err != nil || got != receipts.Genesis(testCase) {
		t.Errorf("without receipts: %v, %v", got, err)
	}
}

// wantBroken checks that rs does not verify and that the error names the changed sequence.
func wantBroken(t *testing.T, rs []receipts.Receipt, seq int64, what string) {
	t.Helper()
	_, err := (receipts.Verifier{}).Verify(testCase, rs)
	var b *receipts.Broken
	if !errors.As(err, &b) || b.Case != testCase || b.Seq != seq {
		t.Errorf("%s of %d: error = %v, want a Broken there", what, seq, err)
	}
}

func TestEveryFieldOfEveryReceiptIsGuarded(t *testing.T) {
	t.Parallel()
	good, _ := chained(t, testCase, sampleDrafts()...)
	testEachField(t, good)
	receipts.ParseEach(good) // before the tampering
	testEachField(t, good)
}

// testEachField changes one field of one receipt at a time.
func testEachField(t *testing.T, good []receipts.Receipt) {
	t.Helper()
	for i := range good {
		for f := range reflect.TypeFor[receipts.Receipt]().NumField() {
			if !reflect.TypeFor[receipts.Receipt]().Field(f).IsExported() {
				continue
			}
			rs := slices.Clone(good)
			field := reflect.ValueOf(&rs[i]).Elem().Field(f)
			switch p := field.Addr().Interface().(type) {
			case *string:
				*p += "x"
			case *receipts.Source:
				*p += "x"
			case *receipts.Subtype:
				*p = receipts.HoldPlaced
			case *int64:
				*p++
			case *time.Time:
				*p = p.Add(time.Microsecond)
			case *receipts.CaseID:
				p[15]++
			case *receipts.RunID:
				p[15]++
			case *[32]byte:
				p[0] ^= 1
			case *[]byte:
				*p = append(slices.Clone(*p), ' ')
			default:
				t.Fatalf("no way to tamper with %s", field.Type())
			}
			wantBroken(t, rs, int64(i+1), reflect.TypeFor[receipts.Receipt]().Field(f).Name)
		}
	}
}

func TestEveryByteOfEveryBodyIsGuarded(t *testing.T) {
	t.Parallel()
	good, _ := chained(t, testCase, sampleDrafts()...)
	for i := range good {
		for n := range good[i].Body {
			rs := slices.Clone(good)
			rs[i].Body = slices.Clone(good[i].Body)
			rs[i].Body[n] ^= 1
			wantBroken(t, rs, int64(i+1), "body")
		}
	}
}

func TestReorderingRemovalAndInsertionAreNoticed(t *testing.T) {
	t.Parallel()
	good, _ := chained(t, testCase, sampleDrafts()...)
	for i := range good[1:] {
		swapped := slices.Clone(good)
		swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
		wantBroken(t, swapped, int64(i+1), "swap")

		renumbered := slices.Clone(swapped)
		renumbered[i].Seq, renumbered[i+1].Seq = int64(i+1), int64(i+2)
		wantBroken(t, renumbered, int64(i+1), "renumbered swap")

		wantBroken(t, slices.Delete(slices.Clone(good), i, i+1), int64(i+1), "removal")
		wantBroken(t, slices.Insert(slices.Clone(good), i+1, good[i]), int64(i+2), "repetition")
	}
	other, _ := chained(t, numberedCase(1), sampleDrafts()...)
	wantBroken(t, slices.Concat(good[:3], other[3:]), 4, "receipt of another case")
}

// Somebody who writes every column and recomputes links is still caught by the form of the body.
func TestForgedBodiesWithRightLinksAreNoticed(t *testing.T) {
	t.Parallel()
	good, _ := chained(t, testCase, sampleDrafts()[:1]...)
	forge := func(body []byte) []receipts.Receipt {
		r := good[0]
		r.Body, r.Link = body, receipts.Genesis(testCase).Next(body).Link
		return []receipts.Receipt{r}
	}
	wantBroken(t, forge(append([]byte(" "), good[0].Body...)), 1, "spelling")
	wantBroken(t, forge([]byte("{}")), 1, "nonsense")
	d := sampleDrafts()[0]
	d.Actor = "mallory"
	body, err := d.AppendBody(nil, testCase, "acme")
	if err != nil {
		t.Fatal(err)
	}
	wantBroken(t, forge(body), 1, "actor in the body alone")
}

func TestACaseHasOneTenant(t *testing.T) {
	t.Parallel()
	rs, head := chained(t, testCase, sampleDrafts()[0])
	more, _, err := receipts.Chain(testCase, "other", head, sampleDrafts()[1])
	if err != nil {
		t.Fatal(err)
	}
	wantBroken(t, append(rs, more...), 2, "tenant")
}

func TestExpectedHeadsNoticeWhatTheChainAloneCannot(t *testing.T) {
	t.Parallel()
	rs, head := chained(t, testCase, sampleDrafts()...)
	forged := sampleDrafts()
	forged[0].Payload.Amount = 1
	rewritten, _ := chained(t, testCase, forged...)
	early, _ := receipts.Verifier{}.Verify(testCase, rs[:4])

	for name, test := range map[string]struct {
		expected receipts.Head
		rs       []receipts.Receipt
		seq      int64 // -1: nothing to notice
	}{
		"whole":                      {head, rs, -1},
		"grown since":                {early, rs, -1},
		"tail cut":                   {head, rs[:7], 8},
		"all cut":                    {head, nil, 1},
		"rewritten":                  {head, rewritten, 8},
		"rewritten and grown since":  {early, rewritten, 4},
		"head of nothing":            {receipts.Genesis(testCase), rs, -1},
		"head of nothing, but wrong": {receipts.Head{}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := receipts.Verifier{Expected: receipts.Heads{testCase: test.expected}}.Verify(testCase, test.rs)
			var b *receipts.Broken
			if test.seq < 0 && err != nil {
				t.Error(err)
			}
			if test.seq >= 0 && (!errors.As(err, &b) || b.Seq != test.seq) {
				t.Errorf("error = %v, want a Broken at %d", err, test.seq)
			}
		})
	}
}

func TestStreamGivesEachHeadAndGoesOnAfterABrokenCase(t *testing.T) {
	t.Parallel()
	one, head1 := chained(t, numberedCase(1), sampleDrafts()...)
	two, _ := chained(t, numberedCase(2), sampleDrafts()...)
	three, head3 := chained(t, numberedCase(3), sampleDrafts()[:2]...)
	two[4].Actor = "mallory"

	heads, broken := receipts.Heads{}, []receipts.CaseID{}
	for h, err := range (receipts.Verifier{}).Stream(each(slices.Concat(one, two, three)...)) {
		if err != nil {
			broken = append(broken, h.Case)
			continue
		}
		heads[h.Case] = h.Head
	}
	want := receipts.Heads{numberedCase(1): head1, numberedCase(3): head3}
	if !reflect.DeepEqual(heads, want) || !slices.Equal(broken, []receipts.CaseID{numberedCase(2)}) {
		t.Errorf("heads %v, broken %v", heads, broken)
	}
}

func TestStreamEndsOnAReadErrorAndOnDisorder(t *testing.T) {
	t.Parallel()
	one, _ := chained(t, numberedCase(1), sampleDrafts()...)
	two, _ := chained(t, numberedCase(2), sampleDrafts()...)
	if err := verifyHeads(nil, each(slices.Concat(two, one)...)); err == nil {
		t.Error("cases out of order pass")
	}
	if err := verifyHeads(nil, each(slices.Concat(one[:4], two, one[4:])...)); err == nil {
		t.Error("a case in two pieces passes")
	}
	lost := errors.New("connection lost")
	failing := func(yield func(receipts.Receipt, error) bool) {
		_ = yield(one[0], nil) && yield(receipts.Receipt{}, lost)
	}
	heads := receipts.Heads{numberedCase(9): {Seq: 1}}
	err := verifyHeads(heads, failing)
	var b *receipts.Broken
	if !errors.Is(err, lost) || errors.As(err, &b) {
		t.Errorf("error = %v, want only that the connection was lost", err)
	}
}

func TestStreamStopsWhenItsReaderDoes(t *testing.T) {
	t.Parallel()
	one, _ := chained(t, numberedCase(1), sampleDrafts()...)
	two, _ := chained(t, numberedCase(2), sampleDrafts()...)
	next, stop := iter.Pull2((receipts.Verifier{}).Stream(each(slices.Concat(one, two)...)))
	h, err, ok := next()
	stop()
	if h.Case != numberedCase(1) || err != nil || !ok {
		t.Errorf("first = %v, %v, %v", h, err, ok)
	}
}

// verifyHeads returns every error of Stream, joined.
func verifyHeads(expected receipts.Heads, got iter.Seq2[receipts.Receipt, error]) error {
	var errs []error
	for _, err := range (receipts.Verifier{Expected: expected}).Stream(got) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func TestAVerifierWithHeadsNoticesMissingTailsAndCases(t *testing.T) {
	t.Parallel()
	one, head1 := chained(t, numberedCase(1), sampleDrafts()...)
	two, head2 := chained(t, numberedCase(2), sampleDrafts()...)
	three, _ := chained(t, numberedCase(3), sampleDrafts()...)
	expected := receipts.Heads{numberedCase(1): head1, numberedCase(2): head2}

	if err := verifyHeads(expected, each(slices.Concat(one, two, three)...)); err != nil {
		t.Errorf("all there, one new: %v", err)
	}
	err := verifyHeads(expected, each(one[:6]...))
	wantError(t, err, numberedCase(1).String()+".7")
	wantError(t, err, numberedCase(2).String()+".1")
	if len(expected) != 2 {
		t.Error("the expected heads were changed")
	}
	wantError(t, verifyHeads(expected, each()), numberedCase(1).String()+".1")
}
