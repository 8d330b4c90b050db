package retrypolicy_test

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

	"github.com/recourse-dev/recourse/retrypolicy"
)

func TestTheZeroPolicyIsTheDefault(t *testing.T) {
	t.Parallel()
	want := retrypolicy.Policy{
		MaxRetryAttempts: 3, BaseDelay: 25 * time.Millisecond, MaxDelay: 5 * time.Minute, Backoff: retrypolicy.Exponential, Coefficient: 2, OnExhaustion: retrypolicy.DeadLetter,
	}
	for _, p := range []retrypolicy.Policy{
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
	got := retrypolicy.Policy{
		MaxRetryAttempts: math.MaxInt, BaseDelay: time.Hour, MaxDelay: time.Second, Backoff: retrypolicy.Linear, Coefficient: 1, Jitter: 7, NonRetryable: given, OnExhaustion: retrypolicy.Discard,
	}.Normalize()
	want := retrypolicy.Policy{
		MaxRetryAttempts: retrypolicy.MaxAttempts, BaseDelay: time.Second, MaxDelay: time.Second, Backoff: retrypolicy.Linear, Coefficient: 1, Jitter: 1, NonRetryable: []string{"a.*", "b"}, OnExhaustion: retrypolicy.Discard,
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
		p     retrypolicy.Policy
	}{
		{"max_retry_attempts", retrypolicy.Policy{MaxRetryAttempts: -1}},
		{"max_retry_attempts", retrypolicy.Policy{MaxRetryAttempts: retrypolicy.MaxAttempts + 1}},
		{"base_delay", retrypolicy.Policy{BaseDelay: -1}},
		{"base_delay", retrypolicy.Policy{BaseDelay: 6 * time.Minute}},
		{"base_delay", retrypolicy.Policy{BaseDelay: 2, MaxDelay: 1}},
		{"max_delay", retrypolicy.Policy{MaxDelay: -1}},
		{"max_delay", retrypolicy.Policy{MaxDelay: time.Millisecond}},
		{"backoff", retrypolicy.Policy{Backoff: "constant"}},
		{"coefficient", retrypolicy.Policy{Coefficient: 0.99}},
		{"coefficient", retrypolicy.Policy{Coefficient: -2}},
		{"coefficient", retrypolicy.Policy{Coefficient: math.NaN()}},
		{"coefficient", retrypolicy.Policy{Coefficient: math.Inf(1)}},
		{"jitter", retrypolicy.Policy{Jitter: -0.1}},
		{"jitter", retrypolicy.Policy{Jitter: 1.1}},
		{"jitter", retrypolicy.Policy{Jitter: math.NaN()}},
		{"non_retryable", retrypolicy.Policy{NonRetryable: slices.Repeat([]string{"a"}, retrypolicy.MaxNonRetryable+1)}},
		{"non_retryable[1]", retrypolicy.Policy{NonRetryable: []string{"a", ""}}},
		{"non_retryable[0]", retrypolicy.Policy{NonRetryable: []string{".*"}}},
		{"non_retryable[0]", retrypolicy.Policy{NonRetryable: []string{"http*"}}},
		{"non_retryable[0]", retrypolicy.Policy{NonRetryable: []string{"a.*.*"}}},
		{"non_retryable[0]", retrypolicy.Policy{NonRetryable: []string{"*"}}},
		{"non_retryable[0]", retrypolicy.Policy{NonRetryable: []string{"a\nb"}}},
		{"non_retryable[0]", retrypolicy.Policy{NonRetryable: []string{"\xff"}}},
		{"non_retryable[0]", retrypolicy.Policy{NonRetryable: []string{strings.Repeat("a", retrypolicy.MaxNonRetryableBytes+1)}}},
		{"on_exhaustion", retrypolicy.Policy{OnExhaustion: "retry"}},
	} {
		err := c.p.Validate()
		var f *retrypolicy.FieldError
		if !errors.As(err, &f) || f.Field != c.field || strings.Contains(err.Error(), "\n") {
			t.Errorf("Validate(%+v) = %v, want exactly one error, about %s", c.p, err, c.field)
		}
	}
	bad := retrypolicy.Policy{MaxRetryAttempts: -1, BaseDelay: -1, MaxDelay: -1, Coefficient: -1, Jitter: -1, NonRetryable: []string{""}, OnExhaustion: "?"}
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
		got, err := retrypolicy.Parse(p.Encode())
		if err != nil || !reflect.DeepEqual(got, p.Normalize()) {
			t.Fatalf("%s gives %+v, %v; want %+v", p.Encode(), got, err, p.Normalize())
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var again retrypolicy.Policy
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%s gives %+v, %v", text, again, err)
		}
	})
}

func TestEncodeIsCanonical(t *testing.T) {
	t.Parallel()
	const want = `{"max_retry_attempts":3,"base_delay":"25ms","max_delay":"5m0s","coefficient":2,"jitter":0,"non_retryable":[],"on_exhaustion":"dead_letter"}`
	if got := (retrypolicy.Policy{}).Encode(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	a, b := retrypolicy.Policy{NonRetryable: []string{"<b>", "a.*"}}, retrypolicy.Policy{NonRetryable: []string{"a.*", "<b>", "a.*"}}
	if got := (retrypolicy.Policy{Backoff: retrypolicy.Exponential}).Encode(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := (retrypolicy.Policy{Backoff: retrypolicy.Linear}).Encode(); !strings.Contains(got, `"max_delay":"5m0s","backoff":"linear","coefficient":2`) {
		t.Errorf("%s does not state its backoff", got)
	}
	if a.Encode() != b.Encode() || !strings.Contains(a.Encode(), `["<b>","a.*"]`) {
		t.Errorf("%s and %s", a.Encode(), b.Encode())
	}
}

func TestParseTakesWhatIsLeftOutAsTheDefault(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]retrypolicy.Policy{
		`{}`:                                    {},
		" {\n\"max_retry_attempts\": 5 } \n":    {MaxRetryAttempts: 5},
		`{"base_delay":"1h","max_delay":"48h"}`: {BaseDelay: time.Hour, MaxDelay: 48 * time.Hour},
		`{"jitter":0,"non_retryable":[]}`:       {},
		`{"backoff":"exponential"}`:             {},
		`{"backoff":"linear"}`:                  {Backoff: retrypolicy.Linear},
		`{"on_exhaustion":"discard","non_retryable":["a","a"]}`:  {OnExhaustion: retrypolicy.Discard, NonRetryable: []string{"a"}},
		`{"max_delay":"2562047h47m16.854775807s","jitter":0.25}`: {MaxDelay: math.MaxInt64, Jitter: 0.25},
	} {
		if got, err := retrypolicy.Parse(text); err != nil || !reflect.DeepEqual(got, want.Normalize()) {
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
		if p, err := retrypolicy.Parse(text); err == nil || !strings.Contains(err.Error(), want) || !reflect.DeepEqual(p, retrypolicy.Policy{}) {
			t.Errorf("%.60q gives %+v, %v; want an error with %q", text, p, err, want)
		}
	}
	var p retrypolicy.Policy
	if err := json.Unmarshal([]byte(`{"x":1}`), &p); err == nil {
		t.Error("UnmarshalJSON takes an unknown field")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(retrypolicy.Policy{}.Encode())
	f.Add(retrypolicy.Policy{NonRetryable: []string{"a.*"}, OnExhaustion: retrypolicy.Discard, Jitter: 0.1, Coefficient: 1.5}.Encode())
	f.Add(`{"base_delay":"1h","max_delay":"2562047h47m16.854775807s"}`)
	f.Add(`{"non_retryable":["\ud800","\u003c"]}`)
	f.Add(`{"jitter":1e-400}`)
	f.Add(`{} `)
	f.Add(`{"a":{"b":[`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := retrypolicy.Parse(text)
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%q gives a policy that is not valid: %v", text, err)
		}
		if again, err := retrypolicy.Parse(p.Encode()); err != nil || !reflect.DeepEqual(again, p) || !reflect.DeepEqual(p, p.Normalize()) {
			t.Errorf("%q gives %+v, its text gives %+v, %v", text, p, again, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := retrypolicy.Policy{MaxRetryAttempts: 5}.Encode()
	for b.Loop() {
		if _, err := retrypolicy.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
