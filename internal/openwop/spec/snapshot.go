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
	out := Snapshot{Run: l.Run.String(), Workflow: l.Workflow.ID, Status: Pending, Owner: Owner{tenant}}
	if !l.submitted.ParentRun.IsZero() {
		out.Source = l.submitted.ParentRun.String()
	}
	attempts, dead := 0, false
	for _, e := range l.Events[:n] {
		switch p := e.Payload.(type) {
		case RunStartedPayload:
			out.Status, out.StartedAt = Running, e.Timestamp
		case NodeStartedPayload:
			attempts = p.Attempt + 1
		case RunDeadLetteredPayload:
			dead = true
		case RunCompletedPayload:
			out.Status = Completed
		case RunCancelledPayload:
			out.Status = Cancelled
		case RunFailedPayload:
			failure := p.Error
			failure.Details = map[string]any{"attempts": attempts, "deadLettered": dead}
			out.Status, out.Error = Failed, &failure
		}
		if e.Ends() {
			out.CompletedAt = e.Timestamp
		}
	}
	return out
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
