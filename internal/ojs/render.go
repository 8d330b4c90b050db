package ojs

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// stateOf returns the state of a job at a time.
func stateOf(s jobs.Status, now time.Time) spec.State {
	return spec.StateOf(spec.Facts{RunState: string(s.State), NotBefore: s.DueAt, Attempt: s.Attempt, Pending: s.AwaitsActivation}, now)
}

// isLetter reports whether a job is an open dead letter.
func isLetter(s jobs.Status) bool {
	return s.State == background.DeadLettered && s.Letter == background.LetterOpen
}

// statusOf returns a job as the specification has it, at a time.
func statusOf(s jobs.Status, now time.Time) spec.Status {
	out := spec.Status{
		ID: s.ID, RunSettings: termsOf(s), State: stateOf(s, now), DeadLetter: isLetter(s), Attempt: s.Attempt, MaxAttempts: s.Policy.MaxRetryAttempts, CreatedAt: s.CreatedAt, EnqueuedAt: s.EnqueuedAt, StartedAt: s.StartedAt,
		Result: s.Output,
	}
	for _, f := range s.Failures {
		out.Errors = append(out.Errors, failureOf(f))
	}
	if n := len(s.Failures); n > 0 && s.Failures[n-1].Run == s.Run && s.State != background.Succeeded {
		out.Error = &out.Errors[n-1]
	}
	if s.Retried {
		out.ReEnqueuedAt = s.EnqueuedAt
	}
	if n := s.Replays.Total(); n > 0 {
		out.Replay = &spec.Replay{Count: n, Rule: s.Replays.LastRule}
		if at := s.Replays.LastReplayedAt; at != nil {
			out.Replay.LastAt = *at
		}
	}
	switch out.State {
	case spec.Completed:
		out.CompletedAt = s.EndedAt
	case spec.Cancelled:
		out.CancelledAt = s.EndedAt
	case spec.Discarded:
		if out.DiscardedAt = s.EndedAt; s.EndedByAttempt {
			out.CompletedAt = s.EndedAt
		}
	case spec.Retryable:
		out.NextAttemptAt, out.RetryDelay = s.DueAt, s.RetryDelay
	}
	return out
}

// termsOf returns what the run of a job has, whatever its envelope says. Only forks have another policy than
// their envelope.
func termsOf(s jobs.Status) spec.RunSettings {
	out := spec.RunSettings{Queue: s.Queue}
	if !s.Parent.IsZero() && !isAdjudication(s) {
		out.Policy = &s.Policy
	}
	return out
}

func failureOf(f jobs.Failure) spec.Failure {
	out := spec.Failure{
		Attempt: f.Attempt, Cycle: f.Cycle, Type: f.Type, Code: f.Code, Message: f.Message, Retryable: !f.Final, Details: f.Details, OccurredAt: f.At,
	}
	if f.Backtrace != "" {
		out.Backtrace = strings.Split(f.Backtrace, "\n")
	}
	return out
}

// renderJob returns {"job":...}.
func renderJob(s jobs.Status, now time.Time) []byte { return wrapJob(s, statusOf(s, now)) }

func wrapJob(s jobs.Status, status spec.Status) []byte {
	return append(append([]byte(`{"job":`), spec.Render(s.Payload, status)...), '}')
}

// withJobs returns an object as JSON with a list of jobs before its other members. The list is JSON already, and
// may be large: it is not read once more.
func withJobs(name string, list json.RawMessage, others any) []byte {
	rest := marshal(others)
	out := make([]byte, 0, len(name)+len(list)+len(rest)+len(`{"":,`))
	out = append(append(append(out, `{"`...), name...), `":`...)
	return append(append(append(out, list...), ','), rest[1:]...)
}

// marshal returns an answer as JSON. It can't fail: answers are texts, numbers, and JSON that was checked.
// What clients wrote stays as they wrote it, but for blanks.
func marshal(v any) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
