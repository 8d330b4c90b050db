package spec_test

import (
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

func TestTheStateOfAJob(t *testing.T) {
	t.Parallel()
	past, future := now.Add(-time.Nanosecond), now.Add(time.Nanosecond)
	for _, c := range []struct {
		f    spec.Facts
		want spec.State
	}{
		{spec.Facts{RunState: "pending"}, spec.Available},
		{spec.Facts{RunState: "pending", NotBefore: past}, spec.Available},
		{spec.Facts{RunState: "pending", NotBefore: now}, spec.Available},
		{spec.Facts{RunState: "pending", NotBefore: future}, spec.Scheduled},
		{spec.Facts{RunState: "pending", Pending: true}, spec.Pending},
		{spec.Facts{RunState: "pending", Pending: true, NotBefore: future}, spec.Pending},
		{spec.Facts{RunState: "scheduled", NotBefore: past, Attempt: 1}, spec.Available},
		{spec.Facts{RunState: "scheduled", NotBefore: now, Attempt: 1}, spec.Available},
		{spec.Facts{RunState: "scheduled", NotBefore: future, Attempt: 1}, spec.Retryable},
		{spec.Facts{RunState: "scheduled", NotBefore: future}, spec.Scheduled},
		{spec.Facts{RunState: "scheduled", NotBefore: past}, spec.Available},
		{spec.Facts{RunState: "pending", NotBefore: future, Attempt: 2}, spec.Retryable},
		{spec.Facts{RunState: "running", NotBefore: future, Attempt: 1}, spec.Active},
		{spec.Facts{RunState: "running", NotBefore: past}, spec.Active},
		{spec.Facts{RunState: "succeeded", Attempt: 1}, spec.Completed},
		{spec.Facts{RunState: "dead_lettered", Attempt: 3}, spec.Discarded},
		{spec.Facts{RunState: "discarded"}, spec.Discarded},
		{spec.Facts{RunState: "cancelled", NotBefore: future}, spec.Cancelled},
		{spec.Facts{}, ""},
		{spec.Facts{RunState: "available"}, ""},
	} {
		if got := spec.StateOf(c.f, now); got != c.want {
			t.Errorf("%+v is %q, want %q", c.f, got, c.want)
		}
	}
	for _, s := range spec.States() {
		if want := s == "completed" || s == "cancelled" || s == "discarded"; s.Final() != want {
			t.Errorf("%s is final: %v", s, s.Final())
		}
	}
}

// Every pair of a state and a request of section 3: allowed, or refused with the state as it is.
func TestWhatMayBeAskedInEachState(t *testing.T) {
	t.Parallel()
	const yes, no = true, false
	requests := []spec.Request{"fetch", "ack", "nack", "heartbeat", "cancel", "activate"}
	table := map[spec.State][]bool{ // fetch, ack, nack, heartbeat, cancel, activate
		"scheduled": {no, no, no, no, yes, no},
		"available": {yes, no, no, no, yes, no},
		"pending":   {no, no, no, no, yes, yes},
		"active":    {no, yes, yes, yes, yes, no},
		"retryable": {no, no, no, no, yes, no},
		"completed": {no, no, no, no, no, no},
		"cancelled": {no, no, no, no, no, no},
		"discarded": {no, no, no, no, no, no},
	}
	expected := map[spec.Request]spec.State{"fetch": "available", "ack": "active", "nack": "active", "heartbeat": "active", "activate": "pending"}
	if len(table) != len(spec.States()) {
		t.Fatalf("%d states, want %d", len(table), len(spec.States()))
	}
	for state, row := range table {
		for i, request := range requests {
			for _, letter := range []bool{true, false} {
				err := spec.CheckRequest(request, jobID, state, letter)
				if row[i] {
					if err != nil {
						t.Errorf("%s of %s: %v", request, state, err)
					}
					continue
				}
				var e *spec.Error
				if !errors.As(err, &e) || e.Status != 409 || e.Code != "conflict" || e.Details["current_state"] != state || e.Details["job_id"] != jobID || e.Retryable {
					t.Errorf("%s of %s: %v", request, state, err)
				} else if want, one := expected[request]; one != (e.Details["expected_state"] == want) {
					t.Errorf("%s of %s expects %v", request, state, e.Details["expected_state"])
				}
			}
		}
		for _, request := range []spec.Request{"retry", "delete"} {
			for _, letter := range []bool{true, false} {
				err := spec.CheckRequest(request, jobID, state, letter)
				if state == "discarded" && letter {
					if err != nil {
						t.Errorf("%s of a dead letter: %v", request, err)
					}
					continue
				}
				var e *spec.Error
				if !errors.As(err, &e) || e.Status != 404 || e.Code != "not_found" || e.Details["resource_type"] != "dead_letter_job" || e.Details["current_state"] != state || e.Hint == "" || e.DocsURL == "" {
					t.Errorf("%s of %s: %v", request, state, err)
				}
			}
		}
	}
	if err := spec.CheckRequest("pause", jobID, spec.Active, true); err == nil {
		t.Error("a request that does not exist is allowed")
	}
}
