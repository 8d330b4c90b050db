package spec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/sosodev/duration"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/internal/strictjson"
)

// taken reports whether a text was taken. A refusal must be one that can be sent.
func taken(t *testing.T, err error) bool {
	t.Helper()
	if err == nil {
		return true
	}
	var e *spec.Error
	if !errors.As(err, &e) || !slices.Contains([]int{400, 413, 422}, e.Status) || e.Code == "" || e.Message == "" || e.Retryable || len(e.Field) > 300 || !json.Valid(e.Body("req_1")) {
		t.Fatalf("%#v", err)
	}
	return false
}

func FuzzParseJob(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		job, err := spec.ParseJob(body, now)
		if !taken(t, err) {
			return
		}
		if err := strictjson.CheckObject(job.Stored); err != nil || len(job.Stored) > maxStored {
			t.Fatalf("%q is stored as %q: %v", body, job.Stored, err)
		}
		again, err := spec.ParseStored(job.Stored)
		if err != nil || !bytes.Equal(again.Stored, job.Stored) || again.Policy.Encode() != job.Policy.Encode() || !again.NotBefore.Equal(job.NotBefore) || !again.ExpiresAt.Equal(job.ExpiresAt) ||
			again.Timeout != job.Timeout || again.Visibility != job.Visibility || again.Queue != job.Queue || again.Priority != job.Priority || again.Pending != job.Pending ||
			job.Unique != nil && again.Unique.Fingerprint != job.Unique.Fingerprint {
			t.Fatalf("%q is stored as %q, which reads as %+v, %v", body, job.Stored, again, err)
		}
		if err := job.Policy.Validate(); err != nil || !spec.ValidType(job.Type) || !spec.ValidQueue(job.Queue) || job.ID != "" && !spec.ValidID(job.ID) {
			t.Fatalf("%q: %+v, %v", body, job, err)
		}
		var given, wire map[string]json.RawMessage
		rendered := spec.Render(job.Stored, spec.Status{ID: jobID, State: spec.Available, MaxAttempts: 1})
		if strictjson.CheckObject(rendered) != nil || json.Unmarshal(body, &given) != nil || json.Unmarshal(rendered, &wire) != nil || !bytes.Equal(wire["args"], given["args"]) {
			t.Fatalf("%q is rendered as %q", body, rendered)
		}
	})
}

func FuzzRender(f *testing.F) {
	f.Fuzz(func(t *testing.T, stored, details, result []byte, message string) {
		failure := spec.Failure{Message: message, Code: message, Details: details, Backtrace: []string{message}}
		s := spec.Status{ID: jobID, Error: &failure, Errors: []spec.Failure{failure}, Result: result, Replay: &spec.Replay{Count: 1, LastAt: now, Rule: message}}
		if got := spec.Render(stored, s); !json.Valid(got) {
			t.Fatalf("%q is rendered as %q", stored, got)
		}
		spec.DirectiveOf(stored)
	})
}

func FuzzOverride(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		override, err := spec.ParseRetry(body)
		if !taken(t, err) {
			return
		}
		job, err := spec.Override([]byte(deadLetter), override, spec.RunSettings{})
		if !taken(t, err) {
			return
		}
		again, err := spec.Override(job.Stored, override, spec.RunSettings{})
		if err != nil || !bytes.Equal(again.Stored, job.Stored) || len(job.Changes) > 1000 || strictjson.CheckObject(job.Stored) != nil || job.Type != "invoice.generate" || job.Priority != 3 {
			t.Fatalf("%q makes %q (%s), and then %q, %v", body, job.Stored, job.Changes, again.Stored, err)
		}
	})
}

func FuzzParseFetch(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := spec.ParseFetch(body)
		if taken(t, err) && (len(got.Queues) == 0 || len(got.Queues) > maxQueues || got.Count < 1 || got.Count > maxFetch || got.Visibility < 0 || got.Visibility > spec.MaxTimeout || len(got.Worker) > maxWorkerID) {
			t.Fatalf("%q: %+v", body, got)
		}
	})
}

func FuzzParseAck(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := spec.ParseAck(body)
		if taken(t, err) && (got.Attempt < 0 || len(got.Result) > 3*spec.MaxBody || got.Result != nil && strictjson.Check(got.Result) != nil) {
			t.Fatalf("%q: %+v", body, got)
		}
	})
}

func FuzzParseNack(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := spec.ParseNack(body)
		if taken(t, err) && (got.Code == "" || got.Type == "" || got.Message == "" || len(got.Backtrace) > maxFrames || got.Details != nil && strictjson.CheckObject(got.Details) != nil) {
			t.Fatalf("%q: %+v", body, got)
		}
	})
}

func FuzzParseHeartbeat(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := spec.ParseHeartbeat(body)
		if taken(t, err) && (got.Worker == "" && len(got.Jobs) == 0 || len(got.Jobs) > maxHeartbeat || slices.ContainsFunc(got.Jobs, func(id string) bool { return !spec.ValidID(id) })) {
			t.Fatalf("%q: %+v", body, got)
		}
	})
}

func FuzzParseBulkRetry(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := spec.ParseBulkRetry(body)
		if taken(t, err) && !bytes.Contains(body, []byte("true")) {
			t.Fatalf("%q: %+v", body, got)
		}
	})
}

func FuzzParseRule(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := spec.ParseRule(body)
		if taken(t, err) && (got.Name == "" || got.Delay < 0 || got.MaxReplays < 1 || got.MaxReplays > maxReplays) {
			t.Fatalf("%q: %+v", body, got)
		}
	})
}

// A query that is taken as a list, a page or a purge has only parameters that were read.
func FuzzParseQueries(f *testing.F) {
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		filter, page, err := spec.ParseList(v)
		if taken(t, err) && (page.Limit < 1 || page.Limit > maxLimit || page.Offset < 0 || page.After != "" && page.Offset > 0 || filter == (spec.Filter{}) && len(v) > 0 && v["limit"] == nil && v["offset"] == nil && v["cursor"] == nil) {
			t.Fatalf("%q: %+v, %+v", query, filter, page)
		}
		filter, page, err = spec.ParseAdminList(v)
		if taken(t, err) && (page.Limit < 1 || page.Limit > maxPerPage || page.Number < 1 || page.Offset != (page.Number-1)*page.Limit || filter == (spec.Filter{}) && len(v) > 0 && v["page"] == nil && v["per_page"] == nil) {
			t.Fatalf("%q: %+v, %+v", query, filter, page)
		}
		if filter, err := spec.ParsePurge(v, now); taken(t, err) && (v.Get("confirm") != "true" || filter == (spec.Filter{}) && len(v) > 1) {
			t.Fatalf("%q: %+v", query, filter)
		}
		if _, err := spec.ParseCommandLinePurge(v, now); taken(t, err) && v.Get("confirm") != "true" && v.Get("older_than") == "" {
			t.Fatalf("%q", query)
		}
	})
}

// What is taken as a time, the standard library takes as the same.
func FuzzParseTime(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		at, err := spec.ParseTime(text)
		if err != nil {
			return
		}
		want, err := time.Parse(time.RFC3339, text)
		if err != nil || !at.Equal(want) || at.IsZero() {
			t.Fatalf("%q is %s, want %s, %v", text, at, want, err)
		}
		if again, err := spec.ParseTime(spec.FormatTime(at)); err != nil || !again.Equal(at.Truncate(time.Millisecond)) {
			t.Fatalf("%q is %s, then %s, %v", text, at, again, err)
		}
	})
}

// What is taken as a duration, another parser takes as the same. It is of 0 to 100 years.
func FuzzParseDuration(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		d, err := spec.ParseDuration(text)
		if err != nil {
			return
		}
		other, err := duration.Parse(text)
		if err != nil || d < 0 || d > 36500*24*time.Hour || (d-other.ToTimeDuration()).Abs() > time.Microsecond {
			t.Fatalf("%q is %s, want %v, %v", text, d, other, err)
		}
		if again, err := spec.ParseDuration(spec.FormatDuration(d)); err != nil || again != d {
			t.Fatalf("%q is %s, then %s, %v", text, d, again, err)
		}
	})
}
