package events

import (
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// Event is one public event of a receipt. See Of.
type Event struct {
	ID     string          `json:"id"` // "<case>.<sequence>.<place within the receipt's events>", the same at every reading
	Type   Type            `json:"type"`
	Tenant string          `json:"tenant"`
	Case   receipts.CaseID `json:"case_id"`
	Run    receipts.RunID  `json:"run_id,omitzero"`
	At     time.Time       `json:"time"` // of the receipt
	Data   Data            `json:"data"`
}

// Type is what happened.
type Type string

// The types.
const (
	RunCreated      Type = "run.created"
	RunStarted      Type = "run.started"
	NodeStarted     Type = "node.started"
	NodeRetried     Type = "node.retried"
	NodeCompleted   Type = "node.completed"
	NodeFailed      Type = "node.failed"
	RunCompleted    Type = "run.completed"
	RunFailed       Type = "run.failed"
	RunCancelled    Type = "run.cancelled"
	RunDeadLettered Type = "run.dead_lettered"
	RunAnsweredLate Type = "run.answered_late"
	RunReconciled   Type = "run.reconciled"
	RunForked       Type = "run.forked"
	RunSuperseded   Type = "run.superseded"
	RunPurged       Type = "run.purged"
	EscrowBreached  Type = "escrow.breached"
	Contradicted    Type = "settlement.contradicted"
	LetterExpiring  Type = "letter.expiring"
	RunFreed        Type = "run.reservation_freed"
	Returned        Type = "settlement.returned"
	PlanBrokeGlass  Type = "plan.break_glass"
	WebhookPaused   Type = "webhook.paused"
)

// Types returns every type. The slice is the caller's.
func Types() []Type {
	return []Type{
		RunCreated, RunStarted, NodeStarted, NodeRetried, NodeCompleted, NodeFailed, RunCompleted, RunFailed, RunCancelled, RunDeadLettered, RunAnsweredLate,
		RunReconciled, RunForked, RunSuperseded, RunPurged, EscrowBreached, LetterExpiring, RunFreed, Returned, PlanBrokeGlass, WebhookPaused,
		Contradicted,
	}
}

// WebhookPause is AskedFor in the receipt of a webhook that was paused.
const WebhookPause = "pause"

// node names the one node that every run has: the call of its executor.
const node = "execute"

// Data holds the particulars of an event: one flat record for all types. Each
// type fills the members that the table of Of names. Zero values are not
// written. Texts are those of the receipt, redacted before it was written.
type Data struct {
	RunID            receipts.RunID `json:"runId,omitzero"`
	NodeID           string         `json:"nodeId,omitempty"`
	Attempt          int            `json:"attempt,omitempty"`    // number of the attempt, from 1
	Attempts         int            `json:"attempts,omitempty"`   // made in all
	NextRetryAt      time.Time      `json:"nextRetryAt,omitzero"` // the next attempt does not start before it
	Reason           string         `json:"reason,omitempty"`     // of a death: reason code and type of error, never its text; else the words of the actor
	Error            *Failure       `json:"error,omitempty"`      // what went wrong
	FailedNodeID     string         `json:"failedNodeId,omitempty"`
	OutcomeClass     string         `json:"outcomeClass,omitempty"` // "executed", "not_executed", "unknown"
	CancelledBy      string         `json:"cancelledBy,omitempty"`
	SettlementStatus string         `json:"settlementStatus,omitempty"` // of the case, where this receipt changed it

	TransactionReceiptID string         `json:"transactionReceiptId,omitempty"`
	RetryKey             string         `json:"retryKey,omitempty"`
	Outcome              string         `json:"outcome,omitempty"` // "release" or "refund"
	Generation           int            `json:"generation,omitempty"`
	Amount               int64          `json:"amount,omitempty"` // asked for, in the minor unit of Currency
	Currency             string         `json:"currency,omitempty"`
	ParentRunID          receipts.RunID `json:"parentRunId,omitzero"` // of a fork: the run it was forked from
	NewRunID             receipts.RunID `json:"newRunId,omitzero"`    // the fork

	Moved     int64  `json:"moved,omitempty"` // in the minor unit of the case's currency
	Reference string `json:"reference,omitempty"`
	Finding   string `json:"finding,omitempty"`  // "executed" or "not_executed"
	Recorded  int64  `json:"recorded,omitempty"` // on record under the operation key, of which an answer states less, or another reference
	Excess    int64  `json:"excess,omitempty"`   // paid beyond what was decided, in the minor unit of the case's currency

	ExpiresAt time.Time `json:"expiresAt,omitzero"` // when the retention of the letter ends

	Freed    int64  `json:"freed,omitempty"`    // in the minor unit of the case's currency
	Returned int64  `json:"returned,omitempty"` // likewise: how much of the payment came back
	PlanID   string `json:"planId,omitempty"`   // the bulk plan
	Action   string `json:"action,omitempty"`   // what it does
	Actor    string `json:"actor,omitempty"`    // who ran the plan, or paused the webhook
	Incident string `json:"incident,omitempty"` // the incident for which one person ran it without a second one

	WebhookID string `json:"webhookId,omitempty"`
}

// Failure is an error as made public.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Of returns the public events of a receipt, in order. A receipt has the same events at every
// reading. It fails as Receipt.Known does.
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
//	discarded              node.failed       likewise
//	                       run.failed        likewise
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
//	contradicted           settlement.contradicted {runId, outcomeClass, moved?, recorded, reference?}
//	reservation-freed      run.reservation_freed {runId, freed, reason, reference, settlementStatus?}
//	returned               settlement.returned {runId, returned, outcome, reason, reference, settlementStatus?}
//	bulk-changed           plan.break_glass  {planId, action, actor, reason, incident}   when one person ran it without a second one
//	webhook-changed        webhook.paused    {webhookId, actor, reason}   when it was paused, by a person or by itself
//	all others             none: they are in the trail only
//
// A run that has ended has exactly one of run.completed, run.failed and run.cancelled, and a live run has
// none. Later events of the run are about its money and its letter only.
func Of(r receipts.Receipt) ([]Event, error) {
	p, err := r.Known()
	if err != nil {
		return nil, fmt.Errorf("receipt %s: %w", r.ID(), err)
	}
	list := eventList{receipt: r}
	list.translate(p)
	return list.events, nil
}

type eventList struct {
	receipt receipts.Receipt
	events  []Event
}

func (l *eventList) add(t Type, d Data) {
	r := l.receipt
	d.RunID = r.Run
	l.events = append(l.events, Event{
		ID: fmt.Sprintf("%s.%d", r.ID(), len(l.events)), Type: t, Tenant: r.Tenant, Case: r.Case, Run: r.Run, At: r.At, Data: d,
	})
}

func (l *eventList) translate(p receipts.Payload) {
	switch l.receipt.Subtype {
	case receipts.Submitted:
		l.add(RunCreated, Data{TransactionReceiptID: p.TransactionReceiptID, RetryKey: p.RetryKey, Outcome: p.Outcome,
			Generation: p.Generation, Amount: p.Amount, Currency: p.Currency, ParentRunID: p.ParentRun})
	case receipts.AttemptStarted:
		if p.Attempt == 1 {
			l.add(RunStarted, Data{})
		}
		l.add(NodeStarted, Data{NodeID: node, Attempt: p.Attempt})
	case receipts.RetryScheduled, receipts.AttemptInterrupted:
		l.add(NodeRetried, Data{NodeID: node, Attempt: p.Attempt, NextRetryAt: p.NextRetryAt, Error: eventError(p), OutcomeClass: p.AttemptClass})
	case receipts.AttemptSucceeded:
		l.add(NodeCompleted, Data{NodeID: node, Attempt: p.Attempt, Moved: p.Moved, Reference: p.Reference})
		l.add(RunCompleted, Data{SettlementStatus: status(p)})
	case receipts.DeadLettered, receipts.Discarded:
		l.failed(p)
	case receipts.Cancelled:
		l.add(RunCancelled, Data{Reason: p.Reason, CancelledBy: l.receipt.Actor, SettlementStatus: status(p)})
	case receipts.ConservationBreach:
		l.add(EscrowBreached, Data{Excess: p.Excess})
	case receipts.Contradicted:
		l.add(Contradicted, Data{Moved: p.Moved, Recorded: p.Recorded, Reference: p.Reference, OutcomeClass: p.AttemptClass})
	case receipts.BulkChanged:
		if p.BreakGlass != "" {
			l.add(PlanBrokeGlass, Data{PlanID: p.Bulk, Action: p.AskedFor, Actor: l.receipt.Actor, Reason: p.Reason, Incident: p.BreakGlass})
		}
	case receipts.WebhookChanged:
		if p.AskedFor == WebhookPause {
			l.add(WebhookPaused, Data{WebhookID: p.Reference, Actor: l.receipt.Actor, Reason: p.Reason})
		}
	default:
		l.afterEnd(p)
	}
}

// failed adds the events of a run that failed for good. One that ended with an attempt has a
// class, and then its node failed.
func (l *eventList) failed(p receipts.Payload) {
	why, failed := p.ReasonCode, ""
	if p.Error.Type != "" {
		why += ": " + p.Error.Type
	}
	if p.AttemptClass != "" {
		failed = node
		l.add(NodeFailed, Data{NodeID: failed, Error: eventError(p), Attempts: p.Attempts})
	}
	if l.receipt.Subtype == receipts.DeadLettered {
		l.add(RunDeadLettered, Data{NodeID: failed, Reason: why, Attempts: p.Attempts})
	}
	l.add(RunFailed, Data{Error: &Failure{Code: p.ReasonCode, Message: why}, FailedNodeID: failed, SettlementStatus: status(p)})
}

// afterEnd adds the events about the money and the letter of an ended run.
func (l *eventList) afterEnd(p receipts.Payload) {
	switch l.receipt.Subtype {
	case receipts.AnsweredLate:
		l.add(RunAnsweredLate, Data{NodeID: node, Attempt: p.Attempt, OutcomeClass: p.AttemptClass, Moved: p.Moved, Reference: p.Reference})
	case receipts.Reconciled:
		l.add(RunReconciled, Data{Finding: p.Finding, Moved: p.Moved, Reference: p.Reference, SettlementStatus: status(p)})
		if p.Ended {
			l.add(RunCompleted, Data{SettlementStatus: status(p)})
		}
	case receipts.ManualRetryRequested:
		l.add(RunForked, Data{NewRunID: p.NewRun})
	case receipts.Superseded:
		l.add(RunSuperseded, Data{})
	case receipts.RetentionExpired, receipts.Purged:
		l.add(RunPurged, Data{Reason: p.Reason})
	case receipts.ReservationFreed:
		l.add(RunFreed, Data{Freed: p.Freed, Reason: p.Reason, Reference: p.FindingReference, SettlementStatus: status(p)})
	case receipts.Returned:
		l.add(Returned, Data{Returned: p.Returned, Outcome: p.Outcome, Reason: p.Reason, Reference: p.Reference, SettlementStatus: status(p)})
	case receipts.RetentionEnding:
		l.add(LetterExpiring, Data{ExpiresAt: p.ExpiresAt})
	}
}

func eventError(p receipts.Payload) *Failure {
	if p.Error == (receipts.Failure{}) {
		return nil
	}
	return &Failure{Code: p.Error.Type, Message: p.Error.Message}
}

func status(p receipts.Payload) string {
	if p.Settlement == nil {
		return ""
	}
	return p.Settlement.ProgressionStatus
}
