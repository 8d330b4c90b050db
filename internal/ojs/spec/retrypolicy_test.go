package spec_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func policyOf(t *testing.T, retry string) retrypolicy.Policy {
	t.Helper()
	return parsed(t, withMembers(`"retry":`+retry)).Policy
}

// The rows of section 7 of the reference: each member is merged with the defaults.
func TestRetryPoliciesAreMergedWithTheDefaults(t *testing.T) {
	t.Parallel()
	with := func(change func(p *retrypolicy.Policy)) retrypolicy.Policy {
		p := defaultPolicy
		change(&p)
		return p
	}
	for retry, want := range map[string]retrypolicy.Policy{
		`{}`:                                                    defaultPolicy,
		`{"max_attempts":0}`:                                    with(func(p *retrypolicy.Policy) { p.MaxRetryAttempts = 1 }),
		`{"max_attempts":1}`:                                    with(func(p *retrypolicy.Policy) { p.MaxRetryAttempts = 1 }),
		`{"max_attempts":10000}`:                                with(func(p *retrypolicy.Policy) { p.MaxRetryAttempts = 10_000 }),
		`{"initial_interval":"PT0.25S"}`:                        with(func(p *retrypolicy.Policy) { p.BaseDelay = 250 * time.Millisecond }),
		`{"initial_interval":"PT5M"}`:                           with(func(p *retrypolicy.Policy) { p.BaseDelay = 5 * time.Minute }),
		`{"initial_interval_ms":1}`:                             with(func(p *retrypolicy.Policy) { p.BaseDelay = time.Millisecond }),
		`{"max_interval":"P30D"}`:                               with(func(p *retrypolicy.Policy) { p.MaxDelay = 30 * 24 * time.Hour }),
		`{"max_interval":"PT1S"}`:                               with(func(p *retrypolicy.Policy) { p.MaxDelay = time.Second }),
		`{"max_interval_ms":300000}`:                            defaultPolicy,
		`{"backoff_coefficient":1.0}`:                           with(func(p *retrypolicy.Policy) { p.Coefficient = 1 }),
		`{"backoff_coefficient":1e300}`:                         with(func(p *retrypolicy.Policy) { p.Coefficient = 1e300 }),
		`{"backoff_coefficient":3}`:                             with(func(p *retrypolicy.Policy) { p.Coefficient = 3 }),
		`{"jitter":true}`:                                       defaultPolicy,
		`{"jitter":false}`:                                      with(func(p *retrypolicy.Policy) { p.Jitter = 0 }),
		`{"non_retryable_errors":[]}`:                           defaultPolicy,
		`{"non_retryable_errors":["auth.*","ValidationError"]}`: with(func(p *retrypolicy.Policy) { p.NonRetryable = []string{"ValidationError", "auth.*"} }),
		`{"on_exhaustion":"discard"}`:                           defaultPolicy,
		`{"on_exhaustion":"dead_letter"}`:                       with(func(p *retrypolicy.Policy) { p.OnExhaustion = retrypolicy.DeadLetter }),
		`{"backoff_strategy":"exponential"}`:                    defaultPolicy,
		`{"backoff_strategy":"linear","backoff_coefficient":1}`: with(func(p *retrypolicy.Policy) { p.Backoff, p.Coefficient = retrypolicy.Linear, 1 }),
		`{"backoff_type":"linear"}`:                             with(func(p *retrypolicy.Policy) { p.Backoff = retrypolicy.Linear }),
		`{"backoff_strategy":"constant"}`:                       with(func(p *retrypolicy.Policy) { p.Coefficient = 1 }),
		`{"backoff_type":"constant","backoff_coefficient":4}`:   with(func(p *retrypolicy.Policy) { p.Coefficient = 1 }),
		`{"initial_interval":"PT10M","max_interval":"PT1H"}`:    with(func(p *retrypolicy.Policy) { p.BaseDelay, p.MaxDelay = 10*time.Minute, time.Hour }),
	} {
		if got := policyOf(t, retry); got.Encode() != want.Encode() {
			t.Errorf("%s is %s, want %s", retry, got.Encode(), want.Encode())
		}
	}
}

func TestRetryPoliciesThatAreRefused(t *testing.T) {
	t.Parallel()
	many := `"` + strings.Repeat(`a","`, 100) + `a"`
	for retry, field := range map[string]string{
		`5`: "", `"PT1S"`: "", `[]`: "", `null`: "", `true`: "",
		`{"max_attempts":-1}`: ".max_attempts", `{"max_attempts":1.5}`: ".max_attempts", `{"max_attempts":"3"}`: ".max_attempts", `{"max_attempts":null}`: ".max_attempts",
		`{"max_attempts":10001}`: ".max_attempts", `{"max_attempts":1e2}`: ".max_attempts",
		`{"initial_interval":"PT0S"}`: ".initial_interval", `{"initial_interval":"1s"}`: ".initial_interval", `{"initial_interval":1000}`: ".initial_interval", `{"initial_interval":"P1M"}`: ".initial_interval",
		`{"initial_interval":"P1Y"}`: ".initial_interval", `{"initial_interval":"P0YT1S"}`: ".initial_interval", `{"max_interval":"P0M1D"}`: ".max_interval", `{"initial_interval":"P1W"}`: ".initial_interval", `{"initial_interval":"-PT1S"}`: ".initial_interval", `{"initial_interval":"P"}`: ".initial_interval",
		`{"initial_interval":null}`: ".initial_interval", `{"initial_interval":"PT10M"}`: ".initial_interval", `{"initial_interval_ms":300001}`: ".initial_interval",
		`{"initial_interval_ms":0}`: ".initial_interval_ms", `{"initial_interval_ms":-1}`: ".initial_interval_ms", `{"initial_interval_ms":"1000"}`: ".initial_interval_ms", `{"initial_interval_ms":1.5}`: ".initial_interval_ms",
		`{"max_interval":"PT0.5S"}`: ".max_interval", `{"max_interval_ms":500}`: ".max_interval", `{"max_interval":"P31D"}`: ".max_interval", `{"max_interval":"PT"}`: ".max_interval", `{"max_interval":true}`: ".max_interval",
		`{"initial_interval":"PT2S","max_interval":"PT1S"}`: ".max_interval",
		`{"backoff_coefficient":0.5}`:                       ".backoff_coefficient", `{"backoff_coefficient":0.9999999}`: ".backoff_coefficient", `{"backoff_coefficient":-2}`: ".backoff_coefficient", `{"backoff_coefficient":"2"}`: ".backoff_coefficient",
		`{"backoff_coefficient":1e400}`: ".backoff_coefficient", `{"backoff_coefficient":null}`: ".backoff_coefficient",
		`{"jitter":1}`: ".jitter", `{"jitter":"true"}`: ".jitter", `{"jitter":null}`: ".jitter",
		`{"non_retryable_errors":"a"}`: ".non_retryable_errors", `{"non_retryable_errors":[1]}`: ".non_retryable_errors", `{"non_retryable_errors":[""]}`: ".non_retryable_errors",
		`{"non_retryable_errors":["a*"]}`: ".non_retryable_errors", `{"non_retryable_errors":[".*"]}`: ".non_retryable_errors", `{"non_retryable_errors":["a\n"]}`: ".non_retryable_errors",
		`{"non_retryable_errors":["` + strings.Repeat("x", 129) + `"]}`: ".non_retryable_errors", `{"non_retryable_errors":[` + many + `]}`: ".non_retryable_errors", `{"non_retryable_errors":null}`: ".non_retryable_errors",
		`{"on_exhaustion":"dead-letter"}`: ".on_exhaustion", `{"on_exhaustion":""}`: ".on_exhaustion", `{"on_exhaustion":null}`: ".on_exhaustion", `{"on_exhaustion":true}`: ".on_exhaustion",
		`{"backoff_strategy":"polynomial"}`: ".backoff_strategy", `{"backoff_strategy":""}`: ".backoff_strategy", `{"backoff_type":"none"}`: ".backoff_type", `{"backoff_type":1}`: ".backoff_type",
		`{"max_retries":3}`: ".max_retries", `{"Max_attempts":3}`: ".Max_attempts", `{"maxAttempts":3}`: ".maxAttempts",
	} {
		for _, place := range []string{"retry", "options.retry", "options.retry_policy"} {
			body := `"retry":` + retry
			if option, is := strings.CutPrefix(place, "options."); is {
				body = `"options":{"` + option + `":` + retry + `}`
			}
			_, err := spec.ParseJob([]byte(withMembers(body)), now)
			refused(t, body, err, 422, "validation_error", place+field)
		}
	}
}

// The delays of section 7: initial * coefficient^(n-1), capped; with jitter times 0.5 up to 1.5, capped
// again; never negative, at any n.
func TestDelaysOfRetryPolicies(t *testing.T) {
	t.Parallel()
	for retry, want := range map[string][]time.Duration{
		`{"jitter":false}`:                       {1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300},
		`{"jitter":false,"max_interval":"PT5S"}`: {1, 2, 4, 5, 5},
		`{"jitter":false,"backoff_strategy":"linear","max_interval":"PT30S"}`:    {1, 2, 3, 4, 5},
		`{"jitter":false,"backoff_strategy":"linear","backoff_coefficient":1.0}`: {1, 2, 3, 4},
		`{"jitter":false,"backoff_strategy":"constant"}`:                         {1, 1, 1, 1},
		`{"jitter":false,"backoff_coefficient":1.0}`:                             {1, 1, 1},
		`{"jitter":false,"backoff_coefficient":3,"initial_interval":"PT2S"}`:     {2, 6, 18, 54},
		`{"jitter":false,"backoff_coefficient":1e300,"initial_interval":"PT2S"}`: {2, 300, 300},
		`{"jitter":false,"backoff_type":"linear","initial_interval":"PT100S"}`:   {100, 200, 300, 300},
		`{"jitter":false,"initial_interval_ms":7000,"max_interval_ms":9000}`:     {7, 9, 9},
		`{"jitter":false,"initial_interval":"PT5M","backoff_strategy":"linear"}`: {300, 300},
	} {
		p := policyOf(t, retry)
		for i, seconds := range want {
			if got := p.JitteredDelay([16]byte{1}, i+1); got != seconds*time.Second {
				t.Errorf("%s: delay %d is %s, want %ds", retry, i+1, got, seconds)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		strategy := rapid.SampledFrom([]string{"exponential", "linear", "constant"}).Draw(t, "strategy")
		initial := time.Duration(rapid.Int64Range(1, 10_000).Draw(t, "initial")) * time.Millisecond
		longest := initial + time.Duration(rapid.Int64Range(0, 100_000).Draw(t, "more"))*time.Millisecond
		coefficient := rapid.Float64Range(1, 10).Draw(t, "coefficient")
		n := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 1<<40)).Draw(t, "n")
		retry := `{"backoff_strategy":"` + strategy + `","initial_interval":"` + spec.FormatDuration(initial) + `","max_interval":"` + spec.FormatDuration(longest) +
			`","backoff_coefficient":` + strconv.FormatFloat(coefficient, 'g', -1, 64)
		parse := func(jitter string) retrypolicy.Policy {
			job, err := spec.ParseJob([]byte(withMembers(`"retry":`+retry+jitter+`}`)), now)
			if err != nil {
				t.Fatal(err)
			}
			return job.Policy
		}
		seed := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "seed"))
		plain := parse(`,"jitter":false`).JitteredDelay(seed, n)
		got := parse("").JitteredDelay(seed, n)
		if plain <= 0 || plain > longest || got < plain/2 || got > longest || float64(got) > 1.5*float64(plain) {
			t.Errorf("%s: delay %d is %s, with jitter %s", retry, n, plain, got)
		}
	})
}

// The matches of section 7: exact; "x.*" is what begins with "x.", and not "x"; case matters.
func TestNonRetryableErrors(t *testing.T) {
	t.Parallel()
	p := policyOf(t, `{"non_retryable_errors":["auth.*","ValidationError"]}`)
	for errorType, final := range map[string]bool{
		"auth.expired": true, "auth.a.b": true, "auth": false, "auth.": true, "Auth.expired": false, "authentication": false,
		"ValidationError": true, "validationerror": false, "ValidationErrors": false, "": false, "AuthenticationError": false,
	} {
		v := p.Decide(retrypolicy.Question{BudgetSpent: 1, Retryable: true, ErrorType: errorType, Now: now})
		if (v.Reason == retrypolicy.NonRetryableType) != final || v.Retry == final {
			t.Errorf("%q: %+v", errorType, v)
		}
	}
}
