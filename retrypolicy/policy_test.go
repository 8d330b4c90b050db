package retrypolicy

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTheZeroPolicyIsTheDefault(t *testing.T) {
	t.Parallel()
	want := Policy{
		MaxRetryAttempts: 3, BaseDelay: 25 * time.Millisecond, MaxDelay: 5 * time.Minute, Backoff: Exponential, Coefficient: 2, OnExhaustion: DeadLetter,
	}
	for _, p := range []Policy{
		{},
		{MaxRetryAttempts: -1, BaseDelay: -1, MaxDelay: -1, Backoff: "?", Coefficient: -1, Jitter: -1, NonRetryable: []string{}, OnExhaustion: "?"},
		{Coefficient: math.Inf(-1), Jitter: math.NaN()},
	} {
		if got := p.Normalize(); !reflect.DeepEqual(got, want) {
			t.Errorf("Normalize(%+v) = %+v, want %+v", p, got, want)
		}
	}
}

func TestNormalizeBringsEveryFieldIntoRange(t *testing.T) {
	t.Parallel()
	given := []string{"b", "a.*", "b"}
	got := Policy{
		MaxRetryAttempts: math.MaxInt, BaseDelay: time.Hour, MaxDelay: time.Second, Backoff: Linear, Coefficient: 1, Jitter: 7, NonRetryable: given, OnExhaustion: Discard,
	}.Normalize()
	want := Policy{
		MaxRetryAttempts: MaxAttempts, BaseDelay: time.Second, MaxDelay: time.Second, Backoff: Linear, Coefficient: 1, Jitter: 1, NonRetryable: []string{"a.*", "b"}, OnExhaustion: Discard,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if !slices.Equal(given, []string{"b", "a.*", "b"}) {
		t.Errorf("the caller's list was changed to %q", given)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		field string
		p     Policy
	}{
		{"max_retry_attempts", Policy{MaxRetryAttempts: -1}},
		{"max_retry_attempts", Policy{MaxRetryAttempts: MaxAttempts + 1}},
		{"base_delay", Policy{BaseDelay: -1}},
		{"base_delay", Policy{BaseDelay: 6 * time.Minute}},
		{"base_delay", Policy{BaseDelay: 2, MaxDelay: 1}},
		{"max_delay", Policy{MaxDelay: -1}},
		{"max_delay", Policy{MaxDelay: time.Millisecond}},
		{"backoff", Policy{Backoff: "constant"}},
		{"coefficient", Policy{Coefficient: 0.99}},
		{"coefficient", Policy{Coefficient: -2}},
		{"coefficient", Policy{Coefficient: math.NaN()}},
		{"coefficient", Policy{Coefficient: math.Inf(1)}},
		{"jitter", Policy{Jitter: -0.1}},
		{"jitter", Policy{Jitter: 1.1}},
		{"jitter", Policy{Jitter: math.NaN()}},
		{"non_retryable", Policy{NonRetryable: slices.Repeat([]string{"a"}, MaxNonRetryable+1)}},
		{"non_retryable[1]", Policy{NonRetryable: []string{"a", ""}}},
		{"non_retryable[0]", Policy{NonRetryable: []string{".*"}}},
		{"non_retryable[0]", Policy{NonRetryable: []string{"http*"}}},
		{"non_retryable[0]", Policy{NonRetryable: []string{"a.*.*"}}},
		{"non_retryable[0]", Policy{NonRetryable: []string{"*"}}},
		{"non_retryable[0]", Policy{NonRetryable: []string{"a\nb"}}},
		{"non_retryable[0]", Policy{NonRetryable: []string{"\xff"}}},
		{"non_retryable[0]", Policy{NonRetryable: []string{strings.Repeat("a", MaxNonRetryableBytes+1)}}},
		{"on_exhaustion", Policy{OnExhaustion: "retry"}},
	} {
		err := c.p.Validate()
		var f *FieldError
		if !errors.As(err, &f) || f.Field != c.field || strings.Contains(err.Error(), "\n") {
			t.Errorf("Validate(%+v) = %v, want exactly one error, about %s", c.p, err, c.field)
		}
	}
	bad := Policy{MaxRetryAttempts: -1, BaseDelay: -1, MaxDelay: -1, Coefficient: -1, Jitter: -1, NonRetryable: []string{""}, OnExhaustion: "?"}
	for _, field := range []string{"max_retry_attempts", "base_delay", "max_delay", "coefficient", "jitter", "non_retryable[0]", "on_exhaustion"} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), field+" ") {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

func TestWhatIsNormalizedIsValidAndStaysAsItIs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := anyPolicy(t).Normalize()
		if err := n.Validate(); err != nil {
			t.Fatal(err)
		}
		if again := n.Normalize(); !reflect.DeepEqual(again, n) {
			t.Fatalf("%+v becomes %+v", n, again)
		}
	})
}

func TestAPolicySurvivesItsText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t)
		got, err := Parse(p.Encode())
		if err != nil || !reflect.DeepEqual(got, p.Normalize()) {
			t.Fatalf("%s gives %+v, %v; want %+v", p.Encode(), got, err, p.Normalize())
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var again Policy
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%s gives %+v, %v", text, again, err)
		}
	})
}

func TestEncodeIsCanonical(t *testing.T) {
	t.Parallel()
	const want = `{"max_retry_attempts":3,"base_delay":"25ms","max_delay":"5m0s","coefficient":2,"jitter":0,"non_retryable":[],"on_exhaustion":"dead_letter"}`
	if got := (Policy{}).Encode(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	a, b := Policy{NonRetryable: []string{"<b>", "a.*"}}, Policy{NonRetryable: []string{"a.*", "<b>", "a.*"}}
	if got := (Policy{Backoff: Exponential}).Encode(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := (Policy{Backoff: Linear}).Encode(); !strings.Contains(got, `"max_delay":"5m0s","backoff":"linear","coefficient":2`) {
		t.Errorf("%s does not state its backoff", got)
	}
	if a.Encode() != b.Encode() || !strings.Contains(a.Encode(), `["<b>","a.*"]`) {
		t.Errorf("%s and %s", a.Encode(), b.Encode())
	}
}

func TestParseTakesWhatIsLeftOutAsTheDefault(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Policy{
		`{}`:                                    {},
		" {\n\"max_retry_attempts\": 5 } \n":    {MaxRetryAttempts: 5},
		`{"base_delay":"1h","max_delay":"48h"}`: {BaseDelay: time.Hour, MaxDelay: 48 * time.Hour},
		`{"jitter":0,"non_retryable":[]}`:       {},
		`{"backoff":"exponential"}`:             {},
		`{"backoff":"linear"}`:                  {Backoff: Linear},
		`{"on_exhaustion":"discard","non_retryable":["a","a"]}`:  {OnExhaustion: Discard, NonRetryable: []string{"a"}},
		`{"max_delay":"2562047h47m16.854775807s","jitter":0.25}`: {MaxDelay: math.MaxInt64, Jitter: 0.25},
	} {
		if got, err := Parse(text); err != nil || !reflect.DeepEqual(got, want.Normalize()) {
			t.Errorf("%s gives %+v, %v; want %+v", text, got, err, want.Normalize())
		}
	}
}

func TestParseIsStrict(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                     "not a JSON object",
		`null`:                                 "not a JSON object",
		`[]`:                                   "not a JSON object",
		`"x"`:                                  "not a JSON object",
		`{`:                                    "not readable",
		`{"jitter":0`:                          "not readable",
		`{"jitter":0,}`:                        "not readable",
		`{} {}`:                                "follows",
		`{}x`:                                  "follows",
		`{"retries":3}`:                        "retries is not a field",
		`{"Jitter":0}`:                         "Jitter is not a field",
		`{"jitter":0,"jitter":0}`:              "jitter is given twice",
		`{"max_retry_attempts":null}`:          "max_retry_attempts is null",
		`{"max_retry_attempts":0}`:             "max_retry_attempts is zero",
		`{"max_retry_attempts":-1}`:            "max_retry_attempts is not between",
		`{"max_retry_attempts":1.5}`:           "max_retry_attempts is not readable",
		`{"max_retry_attempts":"3"}`:           "max_retry_attempts is not readable",
		`{"base_delay":25}`:                    "base_delay is not readable",
		`{"base_delay":"25"}`:                  "base_delay is not a duration",
		`{"base_delay":"0s"}`:                  "base_delay is zero",
		`{"max_delay":"-1s"}`:                  "max_delay is negative",
		`{"backoff":"constant"}`:               "backoff is neither",
		`{"backoff":""}`:                       "backoff is zero",
		`{"coefficient":0}`:                    "coefficient is zero",
		`{"coefficient":1e999}`:                "coefficient is not readable",
		`{"non_retryable":[null]}`:             "non_retryable[0] names no",
		`{"non_retryable":null}`:               "non_retryable is null",
		`{"on_exhaustion":""}`:                 "on_exhaustion is zero",
		`{"on_exhaustion":"forget"}`:           "on_exhaustion is neither",
		"{\"on_exhaustion\":\"\xff\"}":         "not UTF-8",
		`{` + strings.Repeat(" ", 1<<17) + `}`: "longer than",
	} {
		if p, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) || !reflect.DeepEqual(p, Policy{}) {
			t.Errorf("%.60q gives %+v, %v; want an error with %q", text, p, err, want)
		}
	}
	var p Policy
	if err := json.Unmarshal([]byte(`{"x":1}`), &p); err == nil {
		t.Error("UnmarshalJSON takes an unknown field")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Policy{}.Encode())
	f.Add(Policy{NonRetryable: []string{"a.*"}, OnExhaustion: Discard, Jitter: 0.1, Coefficient: 1.5}.Encode())
	f.Add(`{"base_delay":"1h","max_delay":"2562047h47m16.854775807s"}`)
	f.Add(`{"non_retryable":["\ud800","\u003c"]}`)
	f.Add(`{"jitter":1e-400}`)
	f.Add(`{} `)
	f.Add(`{"a":{"b":[`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%q gives a policy that is not valid: %v", text, err)
		}
		if again, err := Parse(p.Encode()); err != nil || !reflect.DeepEqual(again, p) || !reflect.DeepEqual(p, p.Normalize()) {
			t.Errorf("%q gives %+v, its text gives %+v, %v", text, p, again, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := Policy{MaxRetryAttempts: 5}.Encode()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
