package retrypolicy

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of NonRetryable.
const (
	MaxNonRetryable      = 100 // entries
	MaxNonRetryableBytes = 128 // in each
)

// FieldError says which field of a policy is wrong. Field is its name in JSON.
type FieldError struct{ Field, Problem string }

func (e *FieldError) Error() string { return "retrypolicy: " + e.Field + " " + e.Problem }

// Validate returns everything that is wrong with a policy of a person: a join of
// *FieldError. A zero field is not wrong: it asks for the default. Normalize only
// fills in the zero fields of a policy that Validate accepts, and sorts NonRetryable.
func (p Policy) Validate() error {
	var all []error
	refuse := func(wrong bool, field, problem string, args ...any) {
		if wrong {
			all = append(all, &FieldError{Field: field, Problem: fmt.Sprintf(problem, args...)})
		}
	}
	refuse(p.MaxRetryAttempts < 0 || p.MaxRetryAttempts > MaxAttempts, "max_retry_attempts", "is not between 1 and %d", MaxAttempts)
	refuse(p.BaseDelay < 0, "base_delay", "is negative")
	refuse(p.MaxDelay < 0, "max_delay", "is negative")
	longest := p.MaxDelay
	if longest == 0 {
		longest = DefaultMaxDelay
	}
	refuse(p.BaseDelay > 0 && longest > 0 && p.BaseDelay > longest, "base_delay", "is longer than max_delay, %s", longest)
	refuse(p.MaxDelay > 0 && p.BaseDelay == 0 && p.MaxDelay < DefaultBaseDelay, "max_delay", "is shorter than base_delay, %s", DefaultBaseDelay)
	refuse(p.Backoff != "" && p.Backoff != Exponential && p.Backoff != Linear, "backoff", "is neither %s nor %s", Exponential, Linear)
	refuse(p.Coefficient != 0 && !(p.Coefficient >= 1) || math.IsInf(p.Coefficient, 0), "coefficient", "is not a number from 1 up")
	refuse(!(p.Jitter >= 0 && p.Jitter <= 1), "jitter", "is not between 0 and 1")
	refuse(len(p.NonRetryable) > MaxNonRetryable, "non_retryable", "has more than %d entries", MaxNonRetryable)
	for i, entry := range p.NonRetryable[:min(len(p.NonRetryable), MaxNonRetryable)] {
		problem := entryProblem(entry)
		refuse(problem != "", fmt.Sprintf("non_retryable[%d]", i), "%s", problem)
	}
	refuse(p.OnExhaustion != "" && p.OnExhaustion != DeadLetter && p.OnExhaustion != Discard,
		"on_exhaustion", "is neither %s nor %s", DeadLetter, Discard)
	return errors.Join(all...)
}

func entryProblem(entry string) string {
	exact := strings.TrimSuffix(entry, ".*")
	switch {
	case exact == "":
		return "names no error type"
	case len(entry) > MaxNonRetryableBytes:
		return fmt.Sprintf("is longer than %d bytes", MaxNonRetryableBytes)
	case !utf8.ValidString(entry):
		return "is not UTF-8"
	case strings.ContainsFunc(entry, unicode.IsControl):
		return "has a control character"
	case strings.Contains(exact, "*"):
		return "has a * that is not the end of \".*\""
	}
	return ""
}
