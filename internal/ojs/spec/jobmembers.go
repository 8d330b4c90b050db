package spec

import "encoding/json"

// envelopeNames are the members that a client or a server may give a job. strictjson refuses a member
// that differs from one only in case: a reader that ignores case would take it for that one.
type envelopeNames struct {
	ID          json.RawMessage `json:"id"`
	SpecVersion json.RawMessage `json:"specversion"`
	Type        json.RawMessage `json:"type"`
	Args        json.RawMessage `json:"args"`
	Meta        json.RawMessage `json:"meta"`
	Schema      json.RawMessage `json:"schema"`
	Timeout     json.RawMessage `json:"timeout"`
	Options     optionNames     `json:"options"`
	optionNames
	serverNames
}

// optionNames are the options that are known. Others are stored.
type optionNames struct {
	Queue        json.RawMessage `json:"queue"`
	Priority     json.RawMessage `json:"priority"`
	Tags         json.RawMessage `json:"tags"`
	ScheduledAt  json.RawMessage `json:"scheduled_at"`
	DelayUntil   json.RawMessage `json:"delay_until"`
	ExpiresAt    json.RawMessage `json:"expires_at"`
	Pending      json.RawMessage `json:"pending"`
	TimeoutMS    json.RawMessage `json:"timeout_ms"`
	Visibility   json.RawMessage `json:"visibility_timeout"`
	VisibilityMS json.RawMessage `json:"visibility_timeout_ms"`
	Retry        json.RawMessage `json:"retry"`
	RetryPolicy  json.RawMessage `json:"retry_policy"`
	Unique       json.RawMessage `json:"unique"`
	Metadata     json.RawMessage `json:"metadata"`
}

// serverNames are what servers set. visibility_timeout_ms is one, too, and is among the options.
type serverNames struct {
	State         json.RawMessage `json:"state"`
	Attempt       json.RawMessage `json:"attempt"`
	MaxAttempts   json.RawMessage `json:"max_attempts"`
	CreatedAt     json.RawMessage `json:"created_at"`
	EnqueuedAt    json.RawMessage `json:"enqueued_at"`
	ReEnqueuedAt  json.RawMessage `json:"re_enqueued_at"`
	StartedAt     json.RawMessage `json:"started_at"`
	CompletedAt   json.RawMessage `json:"completed_at"`
	CancelledAt   json.RawMessage `json:"cancelled_at"`
	DiscardedAt   json.RawMessage `json:"discarded_at"`
	ActivatedAt   json.RawMessage `json:"activated_at"`
	PreviousState json.RawMessage `json:"previous_state"`
	NextAttemptAt json.RawMessage `json:"next_attempt_at"`
	NextRetryAt   json.RawMessage `json:"next_retry_at"`
	RetryDelayMS  json.RawMessage `json:"retry_delay_ms"`
	Error         json.RawMessage `json:"error"`
	Errors        json.RawMessage `json:"errors"`
	Result        json.RawMessage `json:"result"`
}

// serverMembers are the members that servers set. Those that a client sends are ignored.
var serverMembers = []string{
	"state", "attempt", "max_attempts", "created_at", "enqueued_at", "re_enqueued_at", "started_at", "completed_at", "cancelled_at", "discarded_at",
	"activated_at", "previous_state", "next_attempt_at", "next_retry_at", "retry_delay_ms", "visibility_timeout_ms", "error", "errors", "result",
}

// topAliases are other names of members at the top, under which nothing is stored.
var topAliases = []string{"options", "delay_until", "retry_policy", "timeout_ms", "pending"}

// nullableMembers are those for which the documents name null as the default.
var nullableMembers = []string{"scheduled_at", "delay_until", "expires_at", "unique"}

var (
	notStored       = setOf(serverMembers, topAliases)
	resolvedOptions = setOf([]string{
		"queue", "priority", "tags", "scheduled_at", "delay_until", "expires_at", "pending", "timeout_ms", "visibility_timeout", "visibility_timeout_ms",
		"retry", "retry_policy", "unique", "metadata",
	})
)

func setOf(lists ...[]string) map[string]bool {
	out := map[string]bool{}
	for _, names := range lists {
		for _, name := range names {
			out[name] = true
		}
	}
	return out
}
