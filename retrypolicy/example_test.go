package retrypolicy_test

import (
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/retrypolicy"
)

// The zero policy makes three attempts in all.
func ExamplePolicy_Decide() {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var policy retrypolicy.Policy
	for spent := 1; spent <= 3; spent++ {
		v := policy.Decide(retrypolicy.Question{BudgetSpent: spent, Retryable: true, ErrorType: "http.unavailable", Now: noon})
		fmt.Println(spent, v.Reason, v.Delay)
	}
	refused := policy.Decide(retrypolicy.Question{BudgetSpent: 1, ErrorType: "http.refused", Now: noon})
	fmt.Println(1, refused.Reason)
	// Output:
	// 1 retry 25ms
	// 2 retry 50ms
	// 3 retry_exhausted 0s
	// 1 final
}

// The other side asks for a longer wait than the policy has: it gets it, up to MaxDelay.
func ExamplePolicy_Decide_retryAfter() {
	policy := retrypolicy.Policy{MaxDelay: time.Minute}
	for _, asked := range []time.Duration{time.Second, time.Hour} {
		fmt.Println(policy.Decide(retrypolicy.Question{BudgetSpent: 1, Retryable: true, RetryAfter: asked}).Delay)
	}
	// Output:
	// 1s
	// 1m0s
}

func ExamplePolicy_DelayForAttempt() {
	policy := retrypolicy.Policy{MaxRetryAttempts: 5, BaseDelay: time.Second, MaxDelay: 5 * time.Second}
	for attempt := 1; policy.ShouldScheduleRetry(attempt); attempt++ {
		fmt.Println(attempt, policy.DelayForAttempt(attempt))
	}
	// Output:
	// 1 1s
	// 2 2s
	// 3 4s
	// 4 5s
}

// Parse names the field that is wrong instead of replacing it by the default.
func ExampleParse() {
	policy, err := retrypolicy.Parse(`{"max_retry_attempts": 5, "non_retryable": ["http.refused"]}`)
	fmt.Println(policy.MaxRetryAttempts, policy.BaseDelay, policy.NonRetryable, err)
	_, err = retrypolicy.Parse(`{"max_retry_attempts": 0}`)
	fmt.Println(err)
	// Output:
	// 5 25ms [http.refused] <nil>
	// retrypolicy: max_retry_attempts is zero; leave it out for the default
}
