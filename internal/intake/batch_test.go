package intake_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/recourse-dev/recourse/internal/intake"
)

// countedReader counts how much of an endless text is read.
type countedReader struct {
	begin, again string
	read         int
}

func (c *countedReader) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		at := c.read + n
		if at < len(c.begin) {
			n += copy(p[n:], c.begin[at:])
			continue
		}
		n += copy(p[n:], c.again[(at-len(c.begin))%len(c.again):])
	}
	c.read += n
	return n, nil
}

// Batch refuses a bad batch at its first fault, however long the rest is.
func TestABatchIsReadNoFurtherThanItsBounds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in             *countedReader
		field, problem string
	}{
		"too many":                {&countedReader{begin: `{"list":[{}`, again: `,{}`}, "list", "must have 1 to 10 items, has more"},
		"too long":                {&countedReader{begin: `{"list":[{},{"a":"`, again: `x`}, "list[1]", "is over 1000 bytes"},
		"too long by white space": {&countedReader{begin: `{"list":[{},{"a":`, again: ` `}, "list[1]", "is over 1000 bytes"},
		"too long by a number":    {&countedReader{begin: `{"list":[`, again: `1`}, "list[0]", "is over 1000 bytes"},
		"a name without an end":   {&countedReader{begin: `{"`, again: `list`}, "", "one list"},
		"white space":             {&countedReader{again: " "}, "", "one list"},
		"behind an item":          {&countedReader{begin: `{"list":[{}`, again: "\n"}, "", "one list"},
		"behind the list":         {&countedReader{begin: `{"list":[{}]`, again: "\n"}, "", "one list"},
		"deep":                    {&countedReader{begin: `{"list":[`, again: "["}, "list[0]", "is over 1000 bytes"},
	} {
		_, err := intake.Batch(tc.in, "list", 10, 1000)
		var refused *intake.BatchError
		if !errors.As(err, &refused) || refused.Field != tc.field || !strings.Contains(refused.Problem, tc.problem) || refused.Malformed {
			t.Errorf("%s: %v", name, err)
		}
		if tc.in.read > 5000 {
			t.Errorf("%s: %d bytes were read", name, tc.in.read)
		}
	}
}

func TestTheItemsOfABatchAreThoseThatWereWritten(t *testing.T) {
	t.Parallel()
	long := `{"a":"` + strings.Repeat("x", 1000-8) + `"}`
	for _, in := range []string{` { "list" : [ {"a":1,"a":2} , 7, null,` + long + "] } \n", `{"l\u0069st":[[],"\ud800"]}`} {
		for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in)), iotest.DataErrReader(strings.NewReader(in))} {
			got, err := intake.Batch(r, "list", 4, 1000)
			if err != nil {
				t.Fatalf("%.40s: %v", in, err)
			}
			for _, item := range got {
				if !strings.Contains(in, string(item)) {
					t.Errorf("%.40s: %s", in, item)
				}
			}
			if want := 4 - 2*strings.Count(in, "ud800"); len(got) != want {
				t.Errorf("%.40s: %d items", in, len(got))
			}
		}
	}
}

func TestABatchThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for in, malformed := range map[string]bool{
		"": true, "{": true, "nul": true, `{"list":[`: true, `{"list":[1`: true, `{"list":[1}`: true, `{"list":[1,]}`: true, `{"list":[1]`: true, `{"list":[1]]`: true, `{"list" [1]}`: true,
		"[]": false, "7": false, "{}": false, `{"list":{}}`: false, `{"list":[]}`: false, `{"List":[1]}`: false, `{"more":1,"list":[1]}`: false, `{"list":[1],"list":[2]}`: false,
		`{"list":[1],"more":1}`: false, `{"list":[1]}{}`: false, `{"list":null}`: false,
		`{"list":[1,2,3,4,5]}`: false, `{"list":["` + strings.Repeat("x", 100) + `"]}`: false,
	} {
		_, err := intake.Batch(strings.NewReader(in), "list", 4, 100)
		var refused *intake.BatchError
		if !errors.As(err, &refused) || refused.Malformed != malformed {
			t.Errorf("%s: %v", in, err)
		}
	}
	broken := errors.New("hung up")
	if _, err := intake.Batch(io.MultiReader(strings.NewReader(`{"list":[1,`), iotest.ErrReader(broken)), "list", 4, 100); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// Every accepted batch is JSON with exactly these items.
func FuzzABatchIsItsItems(f *testing.F) {
	for _, seed := range []string{`{"list":[{}]}`, `{"list":[1,"a",[null]]}`, `{"list":[]}`, `{}`, `{"list":[1],"a":2}`, `{"list":[1 2]}`, " \n{\"list\":[\t{\"a\":\"\\u00e9\"}]}", `{"list":[1,]}`, `{"list":[[[]]]}x`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		items, err := intake.Batch(bytes.NewReader(in), "list", 20, 200)
		var refused *intake.BatchError
		if err != nil {
			if !errors.As(err, &refused) {
				t.Fatalf("%v", err)
			}
			return
		}
		var whole map[string][]json.RawMessage
		if err := json.Unmarshal(in, &whole); err != nil || len(whole) != 1 || len(whole["list"]) != len(items) || len(items) == 0 || len(items) > 20 {
			t.Fatalf("%d items: %v", len(items), err)
		}
		for i, item := range items {
			if !bytes.Equal(item, whole["list"][i]) || len(item) > 200 {
				t.Errorf("item %d is %s, not %s", i, item, whole["list"][i])
			}
		}
	})
}
