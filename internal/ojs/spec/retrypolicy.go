package spec

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/retrypolicy"
)

// The defaults of retry policies.
const (
	defaultMaxAttempts = 3
	defaultInitial     = time.Second
	defaultMaximum     = 5 * time.Minute
	defaultCoefficient = 2
	jitterShare        = 0.5 // with jitter a delay is multiplied by 0.5 up to 1.5, and capped again

	// maxInterval bounds delays: nobody would notice a job that waits longer.
	maxInterval = 30 * day
)

var policyMembers = []string{
	"max_attempts", "initial_interval", "initial_interval_ms", "backoff_coefficient", "max_interval", "max_interval_ms", "jitter", "non_retryable_errors",
	"on_exhaustion", "backoff_strategy", "backoff_type",
}

// readPolicy reads a retry policy: each member is merged with the defaults, and the whole is checked.
// resolved has the older names of its members replaced.
func readPolicy(r reader) (policy retrypolicy.Policy, resolved object) {
	r.closed("a retry policy", policyMembers...)
	resolved = slices.Clone(r.object)
	p := retrypolicy.Policy{MaxRetryAttempts: defaultMaxAttempts, Jitter: jitterShare, OnExhaustion: retrypolicy.Discard}
	if n, given := r.whole("max_attempts", 0, retrypolicy.MaxAttempts); given {
		p.MaxRetryAttempts = max(1, int(n)) // 0 and 1 both mean one run
	}
	var given bool
	if p.BaseDelay, given = length(r, &resolved, "initial_interval", parseInterval, maxInterval); !given {
		p.BaseDelay = defaultInitial
	}
	if p.MaxDelay, given = length(r, &resolved, "max_interval", parseInterval, maxInterval); !given {
		p.MaxDelay = defaultMaximum
	}
	p.Backoff, p.Coefficient = backoff(r, &resolved)
	if jitter, given := r.flag("jitter"); given && !jitter {
		p.Jitter = 0
	}
	if names, given := r.texts("non_retryable_errors", retrypolicy.MaxNonRetryable, retrypolicy.MaxNonRetryableBytes); given {
		p.NonRetryable = names
	}
	if end, given := r.text("on_exhaustion", MaxBody); given {
		p.OnExhaustion = retrypolicy.Exhaustion(end)
		if p.OnExhaustion != retrypolicy.Discard && p.OnExhaustion != retrypolicy.DeadLetter {
			r.wrong("on_exhaustion", "must be discard or dead_letter")
		}
	}
	if *r.refusal == nil {
		checkPolicy(r, p)
	}
	return p.Normalize(), resolved
}

// checkPolicy refuses what does not fit together, and what retrypolicy refuses.
func checkPolicy(r reader, p retrypolicy.Policy) {
	if p.BaseDelay > p.MaxDelay {
		if hasEither(r.object, "max_interval", "max_interval_ms") {
			r.wrong("max_interval", "must be at least initial_interval, %s", FormatDuration(p.BaseDelay))
		}
		r.wrong("initial_interval", "must be at most max_interval, which is %s unless it is given", FormatDuration(p.MaxDelay))
	}
	names := map[string]string{"max_retry_attempts": "max_attempts", "base_delay": "initial_interval", "max_delay": "max_interval", "coefficient": "backoff_coefficient"}
	joined, _ := p.Validate().(interface{ Unwrap() []error })
	if joined == nil {
		return
	}
	for _, err := range joined.Unwrap() {
		var wrong *retrypolicy.FieldError
		if !errors.As(err, &wrong) {
			continue
		}
		name, known := names[wrong.Field]
		if !known {
			name, _, _ = strings.Cut(strings.ReplaceAll(wrong.Field, "non_retryable", "non_retryable_errors"), "[")
		}
		r.wrong(name, "%s", wrong.Problem)
	}
}

func hasEither(o object, names ...string) bool {
	return slices.ContainsFunc(o, func(m member) bool { return slices.Contains(names, m.name) })
}

// length reads a duration, which some clients give in milliseconds under another name.
func length(r reader, resolved *object, name string, read func(string) (time.Duration, error), most time.Duration) (time.Duration, bool) {
	d, given := r.duration(name, read, most)
	ms, inMS := r.milliseconds(name+"_ms", time.Millisecond, most)
	if inMS && given && d != ms {
		r.wrong(name+"_ms", "contradicts %s", name)
	}
	if inMS && !given {
		d = ms
	}
	if inMS {
		resolve(resolved, name+"_ms", name, quoted(FormatDuration(d)))
	}
	return d, given || inMS
}

// resolve replaces a member that has an older name. Under the name of the specification it stays as it is.
func resolve(o *object, older, name string, value json.RawMessage) {
	_, had := o.get(name)
	for i, m := range *o {
		if m.name == older && !had {
			(*o)[i] = member{name, value}
			return
		}
	}
	*o = o.without(func(m member) bool { return m.name == older })
}

// backoff reads how delays grow. A constant delay is exponential with a coefficient of 1.
func backoff(r reader, resolved *object) (retrypolicy.Backoff, float64) {
	coefficient := float64(defaultCoefficient)
	if raw, given := r.ofKind("backoff_coefficient", "a number"); given {
		c, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || !(c >= 1) {
			r.wrong("backoff_coefficient", "must be a number from 1 up")
			c = coefficient
		}
		coefficient = c
	}
	places := []place{{r, "backoff_strategy"}, {r, "backoff_type"}}
	strategy, _, given := one(places, func(at place) (string, bool) {
		s, ok := at.text(at.name, MaxBody)
		if ok && !slices.Contains([]string{"exponential", "linear", "constant"}, s) {
			at.wrong(at.name, "must be exponential, linear or constant")
		}
		return s, ok
	}, equal[string])
	if raw, older := r.get("backoff_type"); older && given {
		resolve(resolved, "backoff_type", "backoff_strategy", raw)
	}
	switch strategy {
	case "linear":
		return retrypolicy.Linear, coefficient
	case "constant":
		return retrypolicy.Exponential, 1
	}
	return retrypolicy.Exponential, coefficient
}
