package deadletter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

func FuzzParseDurationReadsWhatItWrites(f *testing.F) {
	for _, seed := range []string{"90m", "36h", "30d", "0", "-1d", "106751d", "9999999d", "1.5h", "2562047h47m16.854775807s", "d", "1dd"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		span, err := deadletter.ParseDuration(text)
		if err != nil {
			return
		}
		if again, err := deadletter.ParseDuration(span.String()); span < 0 || err != nil || again != span {
			t.Errorf("%q is %v, then %v, %v", text, span, again, err)
		}
	})
}

func FuzzALetterFilterIsReadAsItIsEncoded(f *testing.F) {
	for _, seed := range []string{`{}`, `{"letter":"open"}`, `{"letter":"open","held":false,"min_replays":0}`, `{"expiring_within":"30d"}`, `{"letter":null}`, `{"outcome":""}`, `[]`, `{"from":"2026-11-01T00:00:00Z"}`, `{"error_text":"\u0000"}`, `{"min_amount":-1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		filter, err := deadletter.ParseFilter(text)
		if err != nil {
			return
		}
		encoded, err := filter.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := deadletter.ParseFilter(encoded)
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if twice, err := again.Encode(); err != nil || string(twice) != string(encoded) {
			t.Errorf("%s, then %s, %v", encoded, twice, err)
		}
	})
}

// A condition is refused with a *refusal.FieldError, or its evaluation terminates.
func FuzzAConditionIsRefusedOrEvaluated(f *testing.F) {
	for _, seed := range []string{"held", `amount.minor > 100000 && error.type.startsWith("Conn")`, `error.message.matches("^a+$")`, `age > duration("24h")`, `[1,2].all(x, x > 0)`, `{"a":1}["a"] == 1`, `"a"+"b" == "ab"`, `matches("a", "b")`, `1/0 == 1`, "'\\x00' == ''", `timestamp("2026-11-01T10:00:00Z") < dead_lettered_at`, `"x".matches("(a{9}){9}")`, `has(amount.minor)`, `b"a" == b"\377"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		e, err := deadletter.ParseCondition(source)
		var refused *refusal.FieldError
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
	at := deadletter.NewLetterCursor(search.Position{Value: 7, Run: background.RunID{1}}, time.UnixMicro(1).UTC())
	f.Add(at.Encode([]byte("list")), []byte("list"))
	f.Add("", []byte(nil))
	f.Add("////", []byte("x"))
	f.Fuzz(func(t *testing.T, text string, of []byte) {
		if c, err := deadletter.DecodeLetterCursor(text, of); err == nil && c.Encode(of) != text {
			t.Errorf("letters: %q reads as %+v", text, c)
		}
	})
}
