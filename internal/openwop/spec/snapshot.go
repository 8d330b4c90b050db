package spec

import (
	"encoding/json"

	"github.com/recourse-dev/recourse/receipts"
)

// Status is the state of a run on the wire. A dead-lettered run is failed.
type Status string

// The states that this host has.
const (
	Pending    Status = "pending"
	Running    Status = "running"
	Completed  Status = "completed"
	Failed     Status = "failed"
	Cancelling Status = "cancelling"
	Cancelled  Status = "cancelled"
)

// Snapshot is a run as GET /v1/runs/{runId} shows it.
type Snapshot struct {
	Run         string                     `json:"runId"`
	Workflow    string                     `json:"workflowId"`
	Status      Status                     `json:"status"`
	Owner       Owner                      `json:"owner"`
	StartedAt   string                     `json:"startedAt,omitempty"`
	CompletedAt string                     `json:"completedAt,omitempty"`
	Source      string                     `json:"sourceRunId,omitempty"` // of a fork: the run that it was made of
	Variables   map[string]json.RawMessage `json:"variables,omitempty"`   // the inputs
	Error       *Failure                   `json:"error,omitempty"`
}

// Owner is whom a run belongs to.
type Owner struct {
	Tenant string `json:"tenant"`
}

// Snapshot returns the run as it was after its first n events. Variables is not set.
func (l *Log) Snapshot(tenant string, n int) Snapshot {
	return l.Fold(tenant).After(n)
}

// Fold makes the snapshots of a log in order, each of the one before and the events since.
type Fold struct {
	log      *Log
	now      Snapshot
	events   int // that are in now
	attempts int
	dead     bool
}

// Fold returns a Fold before the first event.
func (l *Log) Fold(tenant string) *Fold {
	return &Fold{log: l, now: Snapshot{Run: l.Run.String(), Workflow: l.Workflow.ID, Status: Pending, Owner: Owner{tenant}}}
}

// After returns the run as it was after its first n events, no fewer than in the call before. Variables is not set.
func (f *Fold) After(n int) Snapshot {
	out := &f.now
	if parent := f.log.submitted.ParentRun; !parent.IsZero() {
		out.Source = parent.String()
	}
	for _, e := range f.log.Events[f.events:n] {
		switch p := e.Payload.(type) {
		case RunStartedPayload:
			out.Status, out.StartedAt = Running, e.Timestamp
		case NodeStartedPayload:
			f.attempts = p.Attempt + 1
		case RunDeadLetteredPayload:
			f.dead = true
		case RunCompletedPayload:
			out.Status = Completed
		case RunCancelledPayload:
			out.Status = Cancelled
		case RunFailedPayload:
			failure := p.Error
			failure.Details = map[string]any{"attempts": f.attempts, "deadLettered": f.dead}
			out.Status, out.Error = Failed, &failure
		}
		if e.Ends() {
			out.CompletedAt = e.Timestamp
		}
	}
	f.events = n
	return *out
}

// Terms returns what a settlement was submitted with, as its receipt has it: the variables of its
// snapshot. It is nil of a run of another workflow.
func (l *Log) Terms() map[string]json.RawMessage {
	p := l.submitted
	if p.TransactionReceiptID == "" {
		return nil
	}
	out := map[string]json.RawMessage{}
	for name, value := range map[string]any{
		"transaction_receipt_id": p.TransactionReceiptID, "outcome": p.Outcome, "generation": p.Generation, "target": p.Target,
		"amount": map[string]any{"minor": p.Amount, "currency": p.Currency},
	} {
		text, err := json.Marshal(value)
		if err != nil {
			continue // strings and integers have a form
		}
		out[name] = text
	}
	return out
}

// Submission returns the receipt by which the run was submitted; zero if Add did not see it.
func (l *Log) Submission() receipts.Receipt { return l.submission }
