package jobs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// NewFamily returns the family of jobs.
func NewFamily(j *journal.Journal, handlers *casework.LetterHandlers) *casework.PlainFamily {
	return &casework.PlainFamily{FamilyName: Family, Run: refuseDelivery, LeaseTerms: leaseTerms, Journal: j, LetterHandlers: handlers}
}

// refuseDelivery is the handler of jobs. It is never called, since deliveries do not claim remote runs.
func refuseDelivery(context.Context, background.Attempt) background.Result {
	return background.Result{Class: background.NotExecuted, Retry: true, Failure: &background.Failure{Type: "jobs.delivered", Message: "a job is fetched by a worker, and never delivered"}}
}

// leaseTerms returns what the envelope of a job asks for: how long its leases are, and the time limit
// of an attempt. What is missing or of another type is 0.
func leaseTerms(payload []byte) (length, limit time.Duration) {
	var envelope struct {
		Options struct {
			Visibility json.Number `json:"visibility_timeout_ms"`
			Timeout    json.Number `json:"timeout_ms"`
		} `json:"options"`
	}
	if json.Unmarshal(payload, &envelope) != nil {
		return 0, 0
	}
	return milliseconds(envelope.Options.Visibility), milliseconds(envelope.Options.Timeout)
}

// milliseconds returns a number of milliseconds that leases may have; 0 for any other.
func milliseconds(n json.Number) time.Duration {
	ms, err := n.Int64()
	if err != nil || ms < 0 || ms > casework.MaxLease.Milliseconds() {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
