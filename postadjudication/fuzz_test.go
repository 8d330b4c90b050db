package postadjudication

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

func FuzzParseDurationReadsWhatItWrites(f *testing.F) {
	for _, seed := range []string{"90m", "36h", "30d", "0", "-1d", "106751d", "9999999d", "1.5h", "2562047h47m16.854775807s", "d", "1dd"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		span, err := ParseDuration(text)
		if err != nil {
			return
		}
		if again, err := ParseDuration(span.String()); span < 0 || err != nil || again != span {
			t.Errorf("%q is %v, then %v, %v", text, span, again, err)
		}
	})
}

func FuzzALetterFilterIsReadAsItIsEncoded(f *testing.F) {
	for _, seed := range []string{`{}`, `{"letter":"open"}`, `{"letter":"open","held":false,"min_replays":0}`, `{"expiring_within":"30d"}`, `{"letter":null}`, `{"outcome":""}`, `[]`, `{"from":"2026-11-01T00:00:00Z"}`, `{"error_text":"\u0000"}`, `{"min_amount":-1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		filter, err := ParseLetterFilter(text)
		if err != nil {
			return
		}
		encoded, err := filter.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseLetterFilter(encoded)
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if twice, err := again.Encode(); err != nil || string(twice) != string(encoded) {
			t.Errorf("%s, then %s, %v", encoded, twice, err)
		}
	})
}

func FuzzARuleIsReadAsItIsWritten(f *testing.F) {
	for _, seed := range []string{`{"name":"again","filter":{"error_type":"http.refused"},"after":"1h","max_replays":3}`, `{"name":"a","filter":null}`, `{"name":"a","filter":{}}`, `{}`, `7`, `{"Name":"a"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rule, err := ParseRule(text)
		if err != nil {
			return
		}
		written, err := json.Marshal(rule)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseRule(written); err != nil || !reflect.DeepEqual(again, rule) {
			t.Errorf("%s reads as %+v, then as %+v, %v", written, rule, again, err)
		}
	})
}

// A condition is refused with a *FieldError, or its evaluation terminates.
func FuzzAConditionIsRefusedOrEvaluated(f *testing.F) {
	for _, seed := range []string{"held", `amount.minor > 100000 && error.type.startsWith("Conn")`, `error.message.matches("^a+$")`, `age > duration("24h")`, `[1,2].all(x, x > 0)`, `{"a":1}["a"] == 1`, `"a"+"b" == "ab"`, `matches("a", "b")`, `1/0 == 1`, "'\\x00' == ''", `timestamp("2026-11-01T10:00:00Z") < dead_lettered_at`, `"x".matches("(a{9}){9}")`, `has(amount.minor)`, `b"a" == b"\377"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		e, err := ParseLetterExpr(source)
		var refused *FieldError
		if err != nil {
			if !errors.As(err, &refused) || refused.Field != "where" {
				t.Errorf("%v", err)
			}
			return
		}
		if met, err := e.Matches(context.Background(), exampleLetter()); err != nil && met {
			t.Errorf("met, and %v", err)
		}
	})
}

func FuzzACursorIsOfItsListOnly(f *testing.F) {
	at := letterCursor{place: search.Position{Value: 7, Run: background.RunID{1}}, asOf: time.UnixMicro(1).UTC()}
	group := groupCursor{place: search.GroupPosition{Value: 7, Signature: "a|b", Set: true}, asOf: time.UnixMicro(1).UTC()}
	f.Add(at.encode([]byte("list")), []byte("list"))
	f.Add(group.encode([]byte("list")), []byte("list"))
	f.Add("", []byte(nil))
	f.Add("////", []byte("x"))
	f.Fuzz(func(t *testing.T, text string, of []byte) {
		if c, err := decodeLetterCursor(text, of); err == nil && c.encode(of) != text {
			t.Errorf("letters: %q reads as %+v", text, c)
		}
		if c, err := decodeGroupCursor(text, of); err == nil && c.encode(of) != text {
			t.Errorf("groups: %q reads as %+v", text, c)
		}
	})
}

// An accepted payload has one canonical form, which is accepted unchanged.
func FuzzAPayloadHasOneForm(f *testing.F) {
	for _, seed := range []string{`{}`, `{"b":1,"a":[1.5,null]}`, `{"a":1e400}`, `{"a":9007199254740993}`, `{"a":1,"a":2}`, `{"a":"\ud800"}`, `null`, `{"password":"x"}`, `{"a":-0}`, `{"a":1E2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]any
		numbers := json.NewDecoder(bytes.NewReader(text))
		numbers.UseNumber()
		if json.Valid(text) && numbers.Decode(&object) == nil {
			if _, found := inexactNumberIn(object); found && !holdsInexactNumber(text) {
				t.Errorf("a number of %s would be rounded", text)
			}
		}
		form, err := canonicalPayload(text)
		if err != nil || len(form) == 0 {
			return
		}
		again, err := canonicalPayload(form)
		var refused *FieldError
		if errors.As(err, &refused) { // its canonical form is too long, or has 1e20 written out as an integer
			return
		}
		if err != nil || string(again) != string(form) {
			t.Errorf("%s is %s, then %s, %v", text, form, again, err)
		}
		if !json.Valid(form) {
			t.Errorf("%s is not JSON", form)
		}
	})
}
