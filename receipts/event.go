package receipts

import (
	"fmt"
	"time"
)

// Event is one public event, read off one receipt by Receipt.Events.
type Event struct {
	ID     string    `json:"id"` // "<case>.<sequence>.<place within the receipt's events>", the same at every reading
	Type   EventType `json:"type"`
	Tenant string    `json:"tenant"`
	Case   CaseID    `json:"case_id"`
	Run    RunID     `json:"run_id,omitzero"`
	At     time.Time `json:"time"` // of the receipt
	Data   EventData `json:"data"`
}

// EventType is what happened.
type EventType string

// The types.
const (
	RunCreated      EventType = "run.created"
	RunStarted      EventType = "run.started"
	NodeStarted     EventType = "node.started"
	NodeRetried     EventType = "node.retried"
	NodeCompleted   EventType = "node.completed"
	NodeFailed      EventType = "node.failed"
	RunCompleted    EventType = "run.completed"
	RunFailed       EventType = "run.failed"
	RunCancelled    EventType = "run.cancelled"
	RunDeadLettered EventType = "run.dead_lettered"
	RunAnsweredLate EventType = "run.answered_late"
	RunReconciled   EventType = "run.reconciled"
	RunForked       EventType = "run.forked"
	RunSuperseded   EventType = "run.superseded"
	RunPurged       EventType = "run.purged"
	EscrowBreached  EventType = "escrow.breached"
	LetterExpiring  EventType = "letter.expiring"
	RunFreed        EventType = "run.reservation_freed"
	PlanBrokeGlass  EventType = "plan.break_glass"
)

// node names the one node that every run has: the call of its executor.
const node = "execute"

// EventData holds the particulars of an event: one flat record for all types. Each
// type fills the members that the table of Receipt.Events names. Zero values are not
// written. Texts are those of the receipt, redacted before it was written.
type EventData struct {
	RunID            RunID       `json:"runId,omitzero"`
	NodeID           string      `json:"nodeId,omitempty"`
	Attempt          int         `json:"attempt,omitempty"`    // number of the attempt, from 1
	Attempts         int         `json:"attempts,omitempty"`   // made in all
	NextRetryAt      time.Time   `json:"nextRetryAt,omitzero"` // the next attempt does not start before it
	Reason           string      `json:"reason,omitempty"`     // of a death: reason code and type of error, never its text
	Error            *EventError `json:"error,omitempty"`      // what went wrong
	FailedNodeID     string      `json:"failedNodeId,omitempty"`
	OutcomeClass     string      `json:"outcomeClass,omitempty"` // "executed", "not_executed", "unknown"
	CancelledBy      string      `json:"cancelledBy,omitempty"`
	SettlementStatus string      `json:"settlementStatus,omitempty"` // of the case, where this receipt changed it

	TransactionReceiptID string `json:"transactionReceiptId,omitempty"`
	RetryKey             string `json:"retryKey,omitempty"`
	Outcome              string `json:"outcome,omitempty"` // "release" or "refund"
	Generation           int    `json:"generation,omitempty"`
	Amount               int64  `json:"amount,omitempty"` // asked for, in the minor unit of Currency
	Currency             string `json:"currency,omitempty"`
	ParentRunID          RunID  `json:"parentRunId,omitzero"` // of a fork: the run it was forked from
	NewRunID             RunID  `json:"newRunId,omitzero"`    // the fork

	Moved     int64  `json:"moved,omitempty"` // in the minor unit of the case's currency
	Reference string `json:"reference,omitempty"`
	Finding   string `json:"finding,omitempty"` // "executed" or "not_executed"
	Excess    int64  `json:"excess,omitempty"`  // paid beyond what was decided, in the minor unit of the case's currency

	ExpiresAt time.Time `json:"expiresAt,omitzero"` // when the retention of the letter ends

	Freed    int64  `json:"freed,omitempty"`    // in the minor unit of the case's currency
	PlanID   string `json:"planId,omitempty"`   // the bulk plan
	Action   string `json:"action,omitempty"`   // what it does
	Actor    string `json:"actor,omitempty"`    // who ran it
	Incident string `json:"incident,omitempty"` // the incident for which one person ran it without a second one
}

// EventError is an error as made public.
type EventError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Events returns the public events of the receipt, in order. A receipt has the same events at every
// reading. It fails as Parse does.
//
//	receipt                events in order
//	submitted              run.created       {runId, retryKey, transactionReceiptId?, outcome?, generation?, amount?, currency?, parentRunId?}
//	attempt-started        run.started       {runId}                       with the first attempt
//	                       node.started      {runId, nodeId, attempt}
//	retry-scheduled        node.retried      {runId, nodeId, attempt, nextRetryAt, error, outcomeClass}
//	attempt-interrupted    node.retried      likewise
//	attempt-succeeded      node.completed    {runId, nodeId, attempt, moved?, reference?}
//	                       run.completed     {runId, settlementStatus?}
//	dead-lettered          node.failed       {runId, nodeId, error, attempts}   unless the run died between attempts
//	                       run.dead_lettered {runId, nodeId?, reason, attempts}
//	                       run.failed        {runId, error, failedNodeId?, settlementStatus?}
//	cancelled              run.cancelled     {runId, reason, cancelledBy, settlementStatus?}
//	answered-late          run.answered_late {runId, nodeId, attempt, outcomeClass, moved?, reference?}
//	reconciled             run.reconciled    {runId, finding, moved?, reference?, settlementStatus?}
//	                       run.completed     {runId, settlementStatus?}    when it ended the run
//	manual-retry-requested run.forked        {runId, newRunId}
//	superseded             run.superseded    {runId}
//	retention-expired      run.purged        {runId, reason}
//	purged                 run.purged        likewise
//	retention-ending       letter.expiring   {runId, expiresAt}
//	conservation-breach    escrow.breached   {runId?, excess}
//	reservation-freed      run.reservation_freed {runId, freed, reason, reference, settlementStatus?}
//	bulk-changed           plan.break_glass  {planId, action, actor, reason, incident}   when one person ran it without a second one
//	all others             none: they are in the trail only
//
// A run has exactly one of run.completed, run.failed and run.cancelled. Later events
// of the run are about its money and its letter only.
func (r Receipt) Events() ([]Event, error) {
	p, err := r.Known()
	if err != nil {
		return nil, fmt.Errorf("receipt %s: %w", r.ID(), err)
	}
	list := eventList{receipt: r}
	list.translate(p)
	return list.events, nil
}

type eventList struct {
	receipt Receipt
	events  []Event
}

func (l *eventList) add(t EventType, d EventData) {
	r := l.receipt
	d.RunID = r.Run
	l.events = append(l.events, Event{
		ID: fmt.Sprintf("%s.%d", r.ID(), len(l.events)), Type: t, Tenant: r.Tenant, Case: r.Case, Run: r.Run, At: r.At, Data: d,
	})
}

func (l *eventList) translate(p Payload) {
	switch l.receipt.Subtype {
	case Submitted:
		l.add(RunCreated, EventData{TransactionReceiptID: p.TransactionReceiptID, RetryKey: p.RetryKey, Outcome: p.Outcome,
			Generation: p.Generation, Amount: p.Amount, Currency: p.Currency, ParentRunID: p.ParentRun})
	case AttemptStarted:
		if p.Attempt == 1 {
			l.add(RunStarted, EventData{})
		}
		l.add(NodeStarted, EventData{NodeID: node, Attempt: p.Attempt})
	case RetryScheduled, AttemptInterrupted:
		l.add(NodeRetried, EventData{NodeID: node, Attempt: p.Attempt, NextRetryAt: p.NextRetryAt, Error: eventError(p), OutcomeClass: p.AttemptClass})
	case AttemptSucceeded:
		l.add(NodeCompleted, EventData{NodeID: node, Attempt: p.Attempt, Moved: p.Moved, Reference: p.Reference})
		l.add(RunCompleted, EventData{SettlementStatus: status(p)})
	case DeadLettered:
		l.deadLettered(p)
	case Cancelled:
		l.add(RunCancelled, EventData{Reason: p.Reason, CancelledBy: l.receipt.Actor, SettlementStatus: status(p)})
	case ConservationBreach:
		l.add(EscrowBreached, EventData{Excess: p.Excess})
	case BulkChanged:
		if p.BreakGlass != "" {
			l.add(PlanBrokeGlass, EventData{PlanID: p.Bulk, Action: p.AskedFor, Actor: l.receipt.Actor, Reason: p.Reason, Incident: p.BreakGlass})
		}
	default:
		l.afterEnd(p)
	}
}

// deadLettered adds the events of a death. A death by an attempt has a class, and then
// its node failed.
func (l *eventList) deadLettered(p Payload) {
	why, failed := p.ReasonCode, ""
	if p.Error.Type != "" {
		why += ": " + p.Error.Type
	}
	if p.AttemptClass != "" {
		failed = node
		l.add(NodeFailed, EventData{NodeID: failed, Error: eventError(p), Attempts: p.Attempts})
	}
	l.add(RunDeadLettered, EventData{NodeID: failed, Reason: why, Attempts: p.Attempts})
	l.add(RunFailed, EventData{Error: &EventError{Code: p.ReasonCode, Message: why}, FailedNodeID: failed, SettlementStatus: status(p)})
}

// afterEnd adds the events about the money and the letter of an ended run.
func (l *eventList) afterEnd(p Payload) {
	switch l.receipt.Subtype {
	case AnsweredLate:
		l.add(RunAnsweredLate, EventData{NodeID: node, Attempt: p.Attempt, OutcomeClass: p.AttemptClass, Moved: p.Moved, Reference: p.Reference})
	case Reconciled:
		l.add(RunReconciled, EventData{Finding: p.Finding, Moved: p.Moved, Reference: p.Reference, SettlementStatus: status(p)})
		if p.Ended {
			l.add(RunCompleted, EventData{SettlementStatus: status(p)})
		}
	case ManualRetryRequested:
		l.add(RunForked, EventData{NewRunID: p.NewRun})
	case Superseded:
		l.add(RunSuperseded, EventData{})
	case RetentionExpired, Purged:
		l.add(RunPurged, EventData{Reason: p.Reason})
	case ReservationFreed:
		l.add(RunFreed, EventData{Freed: p.Freed, Reason: p.Reason, Reference: p.FindingReference, SettlementStatus: status(p)})
	case RetentionEnding:
		l.add(LetterExpiring, EventData{ExpiresAt: p.ExpiresAt})
	}
}

func eventError(p Payload) *EventError {
	if p.Error == (Failure{}) {
		return nil
	}
	return &EventError{Code: p.Error.Type, Message: p.Error.Message}
}

func status(p Payload) string {
	if p.Settlement == nil {
		return ""
	}
	return p.Settlement.ProgressionStatus
}
