package spec

import (
	"time"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

// Event is an event of a run's log on the wire.
type Event struct {
	ID        string `json:"eventId"`
	Run       string `json:"runId"`
	Node      string `json:"nodeId,omitempty"`
	Type      string `json:"type"`
	Payload   any    `json:"payload"`
	Timestamp string `json:"timestamp"`
	Sequence  int    `json:"sequence"`
}

// The types of events. Those that begin with "recourse." are our own.
const (
	RunStarted      = "run.started"
	NodeStarted     = "node.started"
	NodeRetried     = "node.retried"
	NodeCompleted   = "node.completed"
	NodeFailed      = "node.failed"
	RunDeadLettered = "run.dead_lettered"
	RunCompleted    = "run.completed"
	RunFailed       = "run.failed"
	RunCancelled    = "run.cancelled"
	AnsweredLate    = "recourse.run.answered_late"
	EscrowBreached  = "recourse.escrow.breached"
	Contradicted    = "recourse.settlement.contradicted"
	StateSnapshot   = "state.snapshot" // in the stream mode values only
)

// Ends reports whether the event is the last one of its log.
func (e Event) Ends() bool {
	return e.Type == RunCompleted || e.Type == RunFailed || e.Type == RunCancelled
}

// Failure is an error in an event or a snapshot.
type Failure struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"` // of a snapshot only
}

// RunStartedPayload is the payload of run.started.
type RunStartedPayload struct {
	Workflow  string `json:"workflowId"`
	Transport string `json:"transport"`
}

// NodeStartedPayload is the payload of node.started.
type NodeStartedPayload struct {
	Node    string `json:"nodeId"`
	Type    string `json:"typeId"`
	Attempt int    `json:"attempt"` // from 0
}

// NodeRetriedPayload is the payload of node.retried.
type NodeRetriedPayload struct {
	Node      string   `json:"nodeId"`
	Attempt   int      `json:"attempt"` // the retry that follows, from 1
	DelayMS   int64    `json:"delayMs"`
	LastError *Failure `json:"lastError,omitempty"`
}

// NodeCompletedPayload is the payload of node.completed.
type NodeCompletedPayload struct {
	Node       string         `json:"nodeId"`
	Outputs    map[string]any `json:"outputs,omitempty"`
	DurationMS int64          `json:"durationMs"`
}

// NodeFailedPayload is the payload of node.failed.
type NodeFailedPayload struct {
	Node     string  `json:"nodeId"`
	Error    Failure `json:"error"`
	Attempts int     `json:"attempts"`
}

// RunDeadLetteredPayload is the payload of run.dead_lettered. RFC 0053 allows no other members.
type RunDeadLetteredPayload struct {
	Run      string `json:"runId"`
	Node     string `json:"nodeId,omitempty"`
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"` // at least 1
}

// RunFailedPayload is the payload of run.failed.
type RunFailedPayload struct {
	Error      Failure `json:"error"`
	FailedNode string  `json:"failedNodeId,omitempty"`
}

// RunCompletedPayload is the payload of run.completed.
type RunCompletedPayload struct {
	Outputs map[string]any `json:"outputs,omitempty"`
}

// RunCancelledPayload is the payload of run.cancelled.
type RunCancelledPayload struct {
	Reason      string `json:"reason,omitempty"`
	CancelledBy string `json:"cancelledBy,omitempty"`
}

// AnsweredLatePayload is the payload of recourse.run.answered_late.
type AnsweredLatePayload struct {
	Node         string         `json:"nodeId"`
	Attempt      int            `json:"attempt"` // from 0
	OutcomeClass string         `json:"outcomeClass,omitempty"`
	Outputs      map[string]any `json:"outputs,omitempty"`
}

// EscrowBreachedPayload is the payload of recourse.escrow.breached.
type EscrowBreachedPayload struct {
	Excess int64 `json:"excess"` // in the minor unit of the case's currency
}

// ContradictedPayload is the payload of recourse.settlement.contradicted. Sums are in the minor unit of the case's
// currency.
type ContradictedPayload struct {
	OutcomeClass string         `json:"outcomeClass"`
	Recorded     int64          `json:"recorded"` // what is on record
	Outputs      map[string]any `json:"outputs,omitempty"`
}

// Log builds the log of one run from the receipts of its case. The zero value is not usable: set Workflow
// and Run.
type Log struct {
	Workflow Workflow
	Run      receipts.RunID

	Events []Event

	submission receipts.Receipt // by which the run was submitted; zero before Add saw it
	submitted  receipts.Payload // its particulars
	started    time.Time        // of the newest attempt
	ended      bool
}

// Add appends the events of the next receipts of the run's case, in their order. Receipts of other runs
// have none in this log, nor has what happened after the run's end. It fails as events.Of does.
func (l *Log) Add(rs []receipts.Receipt) error {
	for _, r := range rs {
		if r.Run != l.Run || l.ended {
			continue
		}
		if r.Subtype == receipts.Submitted {
			p, err := r.Known()
			if err != nil {
				return err
			}
			l.submission, l.submitted = r, p
		}
		public, err := events.Of(r)
		if err != nil {
			return err
		}
		for _, e := range public {
			l.add(e)
		}
	}
	return nil
}

// Ended reports whether the log has its last event.
func (l *Log) Ended() bool { return l.ended }

// After returns the events whose sequence is greater than n.
func (l *Log) After(n int) []Event {
	if n >= len(l.Events) {
		return nil
	}
	return l.Events[max(0, n+1):]
}

func (l *Log) add(e events.Event) {
	kind, node, payload := l.translate(e)
	if kind == "" {
		return
	}
	one := Event{ID: e.ID, Run: l.Run.String(), Node: node, Type: kind, Payload: payload, Timestamp: FormatTime(e.At), Sequence: len(l.Events)}
	l.Events, l.ended = append(l.Events, one), one.Ends()
}

// translate returns type, node and payload of an event of ours, or no type if OpenWOP's log leaves it out.
func (l *Log) translate(e events.Event) (kind, node string, payload any) {
	d := e.Data
	switch e.Type {
	case events.RunStarted:
		return RunStarted, "", RunStartedPayload{Workflow: l.Workflow.ID, Transport: "rest"}
	case events.NodeStarted:
		l.started = e.At
		return NodeStarted, d.NodeID, NodeStartedPayload{Node: d.NodeID, Type: l.Workflow.NodeType, Attempt: d.Attempt - 1}
	case events.NodeRetried:
		return NodeRetried, d.NodeID, NodeRetriedPayload{Node: d.NodeID, Attempt: d.Attempt, DelayMS: max(0, d.NextRetryAt.Sub(e.At).Milliseconds()), LastError: failureOf(d.Error)}
	case events.NodeCompleted:
		return NodeCompleted, d.NodeID, NodeCompletedPayload{Node: d.NodeID, Outputs: outputs(d), DurationMS: max(0, e.At.Sub(l.started).Milliseconds())}
	case events.NodeFailed:
		return NodeFailed, d.NodeID, NodeFailedPayload{Node: d.NodeID, Error: orUnnamed(failureOf(d.Error)), Attempts: max(1, d.Attempts)}
	case events.RunDeadLettered:
		return RunDeadLettered, d.NodeID, RunDeadLetteredPayload{Run: l.Run.String(), Node: d.NodeID, Reason: d.Reason, Attempts: max(1, d.Attempts)}
	case events.RunFailed:
		return RunFailed, "", RunFailedPayload{Error: orUnnamed(failureOf(d.Error)), FailedNode: d.FailedNodeID}
	case events.RunCompleted:
		return RunCompleted, "", RunCompletedPayload{Outputs: l.lastOutputs()}
	case events.RunCancelled:
		return RunCancelled, "", RunCancelledPayload{Reason: d.Reason, CancelledBy: d.CancelledBy}
	case events.RunAnsweredLate:
		return AnsweredLate, d.NodeID, AnsweredLatePayload{Node: d.NodeID, Attempt: d.Attempt - 1, OutcomeClass: d.OutcomeClass, Outputs: outputs(d)}
	case events.EscrowBreached:
		return EscrowBreached, "", EscrowBreachedPayload{Excess: d.Excess}
	case events.Contradicted:
		return Contradicted, "", ContradictedPayload{OutcomeClass: d.OutcomeClass, Recorded: d.Recorded, Outputs: outputs(d)}
	}
	return "", "", nil
}

// lastOutputs returns the outputs of the node, if it completed.
func (l *Log) lastOutputs() map[string]any {
	for i := len(l.Events) - 1; i >= 0; i-- {
		if p, is := l.Events[i].Payload.(NodeCompletedPayload); is {
			return p.Outputs
		}
	}
	return nil
}

// outputs returns what an attempt of a settlement paid.
func outputs(d events.Data) map[string]any {
	if d.Moved == 0 && d.Reference == "" {
		return nil
	}
	out := map[string]any{"moved": d.Moved}
	if d.Reference != "" {
		out["reference"] = d.Reference
	}
	return out
}

func failureOf(f *events.Failure) *Failure {
	if f == nil {
		return nil
	}
	return &Failure{Code: f.Code, Message: f.Message}
}

// orUnnamed returns a failure with code and message, which the schema of OpenWOP requires.
func orUnnamed(f *Failure) Failure {
	out := Failure{Code: "node_execution_failed"}
	if f != nil {
		out.Message = f.Message
		if f.Code != "" {
			out.Code = f.Code
		}
	}
	if out.Message == "" {
		out.Message = out.Code
	}
	return out
}

// FormatTime writes a time as OpenWOP has it: RFC 3339 in UTC.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
