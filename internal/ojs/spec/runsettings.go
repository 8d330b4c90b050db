package spec

import (
	"encoding/json"
	"strconv"

	"github.com/recourse-dev/recourse/retrypolicy"
)

// RunSettings are the queue and the retry policy of a run. A fork may have others than its envelope, which stays as
// its client sent it.
type RunSettings struct {
	Queue  string              // empty: that of the envelope
	Policy *retrypolicy.Policy // nil: that of the envelope
}

// over writes the terms over those of an envelope. A member that says the same stays as it was written.
func (t RunSettings) over(envelope *object) {
	if t.Queue != "" && t.Queue != queueOf(*envelope) {
		envelope.set("queue", quoted(t.Queue))
	}
	if t.Policy == nil {
		return
	}
	raw, _ := envelope.get("retry")
	if stored, _ := readPolicy(newReader(members(raw))); stored.Encode() != t.Policy.Encode() {
		envelope.set("retry", retryOf(*t.Policy).encode())
	}
}

// queueOf returns the queue of an envelope.
func queueOf(envelope object) string {
	raw, given := envelope.get("queue")
	if !given {
		return DefaultQueue
	}
	queue, _ := unquote(raw)
	return queue
}

// retryOf returns a retry policy as an envelope has it. Delays are cut to what envelopes may say, and any share
// of jitter is true.
func retryOf(p retrypolicy.Policy) object {
	p = p.Normalize()
	out := object{
		{"max_attempts", number(int64(p.MaxRetryAttempts))},
		{"initial_interval", quoted(FormatDuration(min(p.BaseDelay, maxInterval)))}, {"max_interval", quoted(FormatDuration(min(p.MaxDelay, maxInterval)))},
		{"backoff_strategy", quoted(string(p.Backoff))}, {"backoff_coefficient", json.RawMessage(strconv.FormatFloat(p.Coefficient, 'f', -1, 64))},
		{"jitter", json.RawMessage(strconv.FormatBool(p.Jitter > 0))}, {"on_exhaustion", quoted(string(p.OnExhaustion))},
	}
	if len(p.NonRetryable) > 0 {
		out = append(out, member{"non_retryable_errors", list(p.NonRetryable)})
	}
	return out
}
