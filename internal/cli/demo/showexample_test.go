package demo

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// A dead letter shows its outcome class if that differs from the class of the last attempt.
func TestADeathSaysWhatIsKnownOfTheMoney(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ attempt, outcome, want string }{
		{"unknown", "not_executed", "unknown: timeout; retry_exhausted after 3 attempts, in all not_executed, case now unchanged"},
		{"not_executed", "unknown", "not_executed: timeout; retry_exhausted after 3 attempts, in all unknown, case now unchanged"},
		{"unknown", "unknown", "unknown: timeout; retry_exhausted after 3 attempts, case now unchanged"},
	} {
		died := parsedReceipt{payload: receipts.Payload{AttemptClass: tc.attempt, OutcomeClass: tc.outcome, ReasonCode: "retry_exhausted", Attempts: 3}}
		died.Subtype, died.payload.Error.Type = receipts.DeadLettered, "timeout"
		if got := describeReceipt(died, time.Time{}); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
