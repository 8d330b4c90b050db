package spec

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/recourse-dev/recourse/internal/strictjson"
)

// Status is what a server knows of a job beside its envelope. Zero times, empty texts and nil are absent
// on the wire, never null.
type Status struct {
	ID            string
	RunSettings   // of the run, over those of the envelope
	State         State
	DeadLetter    bool // an open one
	Attempt       int  // also written when it is 0
	MaxAttempts   int  // likewise
	CreatedAt     time.Time
	EnqueuedAt    time.Time
	ReEnqueuedAt  time.Time // when a dead letter was retried
	StartedAt     time.Time // the last attempt
	CompletedAt   time.Time // of a job that succeeded, or that the answer to an attempt discarded; not of one that expired
	CancelledAt   time.Time
	DiscardedAt   time.Time
	ActivatedAt   time.Time     // in the answer that activates it
	PreviousState State         // in answers that change the state
	NextAttemptAt time.Time     // of a retryable job
	RetryDelay    time.Duration // before the next attempt, or before the one that runs
	Visibility    time.Duration // of the lease; 0: what the job asked for, if anything
	Error         *Failure      // the last one, unless the job succeeded or was retried since
	Errors        []Failure     // of all attempts, the oldest first
	Result        json.RawMessage
	Replay        *Replay // nil: no rule has replayed it
}

// Failure is a failed attempt, with the members that all three shapes in use have.
type Failure struct {
	Attempt    int             `json:"attempt"`
	Cycle      int             `json:"cycle,omitempty"` // which run of the job, from 1: attempts are counted anew after the retry of a dead letter
	Type       string          `json:"type"`            // empty: the code
	Code       string          `json:"code"`            // empty: the type
	Message    string          `json:"message"`         // empty: the code
	Retryable  bool            `json:"retryable"`
	Details    json.RawMessage `json:"details,omitempty"`
	Backtrace  []string        `json:"backtrace,omitempty"`
	OccurredAt time.Time       `json:"-"`
}

// Replay is what rules did to a job. It is shown in meta, over what is stored there under the same names;
// the stored meta stays.
type Replay struct {
	Count  int
	LastAt time.Time
	Rule   string
}

// The members of meta that Replay is shown in.
const (
	metaReplayCount    = "ojs.replay_count"
	metaLastReplayedAt = "ojs.last_replayed_at"
	metaReplayRule     = "ojs.replay_rule"
)

// Render returns a job as it is on the wire: the members of its stored envelope as they are, but with the
// queue and the retry policy of its run, and with the defaults of queue and priority, then those of the server. Limits of time, which are stored among the
// options, stand at the top. Of a stored text that is no JSON it renders the members that can be read: the
// job is JSON in any case.
func Render(stored json.RawMessage, s Status) json.RawMessage {
	envelope := members(stored)
	if !json.Valid(stored) {
		envelope = envelope.without(func(m member) bool { return !json.Valid(m.value) })
	}
	out := make(object, 0, len(envelope)+24)
	out = append(out, member{"id", quoted(s.ID)}, member{"specversion", quoted(Version)})
	var options object
	for _, m := range envelope {
		switch {
		case m.name == "options":
			options = members(m.value)
		case m.name != "id" && m.name != "specversion" && !notStored[m.name]:
			out = append(out, m)
		}
	}
	s.RunSettings.over(&out)
	for _, missing := range (object{{"queue", quoted(DefaultQueue)}, {"priority", number(0)}}) {
		if _, given := out.get(missing.name); !given {
			out = append(out, missing)
		}
	}
	out = append(out, liftOptions(options, s.Visibility)...)
	if s.Replay != nil {
		out.set("meta", s.Replay.over(out))
	}
	out = append(out, s.members()...)
	if _, given := out.get("metadata"); s.DeadLetter && !given { // the extension for dead letters has these times once more
		out = append(out, member{"metadata", object{{"created_at", quoted(FormatTime(s.CreatedAt))}, {"discarded_at", quoted(FormatTime(s.DiscardedAt))}}.encode()})
	}
	return out.encode()
}

// liftOptions returns the limits of time among the options as members of the job, and the options that
// are not the server's to know.
func liftOptions(options object, visibility time.Duration) (out object) {
	for _, m := range options {
		if m.name == "timeout_ms" || m.name == "visibility_timeout_ms" && visibility == 0 {
			out = append(out, m)
		}
	}
	if visibility > 0 {
		out = append(out, member{"visibility_timeout_ms", number(visibility.Milliseconds())})
	}
	if rest := options.without(func(m member) bool { return resolvedOptions[m.name] }); len(rest) > 0 {
		out = append(out, member{"options", rest.encode()})
	}
	return out
}

// over returns the meta of a job with the replay shown in it.
func (r *Replay) over(job object) json.RawMessage {
	raw, _ := job.get("meta")
	meta := members(raw)
	meta.set(metaReplayCount, number(int64(r.Count)))
	if !r.LastAt.IsZero() {
		meta.set(metaLastReplayedAt, quoted(FormatTime(r.LastAt)))
	}
	if r.Rule != "" {
		meta.set(metaReplayRule, quoted(r.Rule))
	}
	return meta.encode()
}

// members returns the members that the server sets.
func (s Status) members() object {
	out := object{{"state", quoted(string(s.State))}, {"attempt", number(int64(s.Attempt))}, {"max_attempts", number(int64(s.MaxAttempts))}}
	for _, t := range []struct {
		name string
		at   time.Time
	}{
		{"created_at", s.CreatedAt}, {"enqueued_at", s.EnqueuedAt}, {"re_enqueued_at", s.ReEnqueuedAt}, {"started_at", s.StartedAt}, {"completed_at", s.CompletedAt},
		{"cancelled_at", s.CancelledAt}, {"discarded_at", s.DiscardedAt}, {"activated_at", s.ActivatedAt},
		{"next_attempt_at", s.NextAttemptAt}, {"next_retry_at", s.NextAttemptAt}, // HTTP says the one, the retry and event documents the other
	} {
		if !t.at.IsZero() {
			out = append(out, member{t.name, quoted(FormatTime(t.at))})
		}
	}
	if s.PreviousState != "" {
		out = append(out, member{"previous_state", quoted(string(s.PreviousState))})
	}
	if s.RetryDelay > 0 {
		out = append(out, member{"retry_delay_ms", number(s.RetryDelay.Milliseconds())})
	}
	if s.Error != nil {
		out = append(out, member{"error", s.Error.encode()})
	}
	if len(s.Errors) > 0 {
		all := []byte{'['}
		for i := range s.Errors {
			if i > 0 {
				all = append(all, ',')
			}
			all = append(all, s.Errors[i].encode()...)
		}
		out = append(out, member{"errors", append(all, ']')})
	}
	if json.Valid(s.Result) && !isNull(s.Result) {
		out = append(out, member{"result", s.Result})
	}
	return out
}

// codeHandlerError is the code of a failure that has no other one.
const codeHandlerError = "handler_error"

// encode returns a failure as JSON. Its code, type and message are never empty, since strict clients want
// all three. Details that are no JSON object are left out.
func (f Failure) encode() json.RawMessage {
	if f.Code == "" {
		f.Code = f.Type
	}
	if f.Code == "" {
		f.Code = codeHandlerError
	}
	if f.Type == "" {
		f.Type = f.Code
	}
	if f.Message == "" {
		f.Message = f.Code
	}
	if !json.Valid(f.Details) || strictjson.Kind(f.Details) != "an object" {
		f.Details = nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		Failure
		OccurredAt string `json:"occurred_at"`
	}{f, FormatTime(f.OccurredAt)})
	if err != nil { // unreachable: texts, numbers and checked JSON
		return json.RawMessage("{}")
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
