package receipts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// AppendBody appends to dst the body of a receipt of a case: the canonical JSON of {actor, at, case, payload, run,
// source, subtype, tenant}, which is everything it says except its sequence and link. A draft without a run
// has "run":"". Parse of the appended bytes gives back what went in, its times in UTC microseconds.
//
// A zero case, an empty tenant or actor, a zero time, an unknown subtype and a value that a body can't hold
// are a *FieldError, and dst comes back as it was.
func (d *Draft) AppendBody(dst []byte, id CaseID, tenant string) ([]byte, error) {
	if err := checkDraft(id, tenant, d); err != nil {
		return dst, err
	}
	c := canon{buf: append(dst, '{')}
	c.text("actor", d.Actor)
	c.time("at", d.At)
	c.id("case", id)
	c.open("payload")
	c.payload(&d.Payload)
	c.close()
	if d.Run.IsZero() {
		c.text("run", "")
	} else {
		c.id("run", d.Run)
	}
	c.text("source", string(d.Subtype.Source()))
	c.text("subtype", string(d.Subtype))
	c.text("tenant", tenant)
	c.close()
	if c.err != nil {
		return dst, c.err
	}
	return c.buf, nil
}

func checkDraft(id CaseID, tenant string, d *Draft) error {
	switch {
	case id.IsZero():
		return &FieldError{Field: "case", What: "is not given"}
	case tenant == "":
		return &FieldError{Field: "tenant", What: "is not given"}
	case d.Actor == "":
		return &FieldError{Field: "actor", What: "is not given"}
	case d.At.Truncate(time.Microsecond).IsZero():
		return &FieldError{Field: "at", What: "is not given"}
	case d.Subtype.Source() == "":
		return &FieldError{Field: "subtype", What: "is not known: " + string(d.Subtype)}
	}
	return nil
}

// payload writes the members in their sorted order, split by the alphabet to stay readable.
func (c *canon) payload(p *Payload) {
	c.payloadAtoF(p)
	c.payloadGtoZ(p)
}

func (c *canon) payloadAtoF(p *Payload) {
	c.optText("adjudication_id", p.AdjudicationID)
	c.optInteger("amount", p.Amount)
	c.optText("archive", p.Archive)
	c.optText("archive_digest", p.ArchiveDigest)
	c.optText("asked_for", p.AskedFor)
	c.optInteger("attempt", int64(p.Attempt))
	c.optText("attempt_class", p.AttemptClass)
	c.optInteger("attempts", int64(p.Attempts))
	c.optText("break_glass", p.BreakGlass)
	c.optInteger("budget_spent", int64(p.BudgetSpent))
	c.optText("bulk", p.Bulk)
	c.optText("call", p.Call)
	c.optTrue("call_outstanding", p.CallOutstanding)
	c.optTrue("case_unmoved", p.CaseUnmoved)
	c.optText("changes", p.Changes)
	c.optText("content_digest", p.ContentDigest)
	c.optTrue("contradicts_record", p.ContradictsRecord)
	c.optText("currency", p.Currency)
	c.optTime("dead_lettered_at", p.DeadLetteredAt)
	c.optText("dispatch_reference", p.DispatchReference)
	c.optInteger("duration_us", p.DurationUS)
	c.optTrue("ended", p.Ended)
	c.optInteger("epoch", int64(p.Epoch))
	c.failure(&p.Error)
	c.optText("escrow_reference", p.EscrowReference)
	c.optInteger("excess", p.Excess)
	c.optTime("expires_at", p.ExpiresAt)
	c.optText("family", p.Family)
	c.optText("finding", p.Finding)
	c.optText("finding_reference", p.FindingReference)
	c.optInteger("freed", p.Freed)
}

func (c *canon) payloadGtoZ(p *Payload) {
	c.optInteger("generation", int64(p.Generation))
	c.optTrue("handed_back", p.HandedBack)
	c.optInteger("held", p.Held)
	c.optTrue("key_forgotten", p.KeyForgotten)
	c.optTrue("letter_closed", p.LetterClosed)
	c.optID("letter_of", p.LetterOf)
	c.optInteger("letters", int64(p.Letters))
	c.optText("lookup", p.Lookup)
	c.optText("lookup_url", p.LookupURL)
	c.optInteger("moved", p.Moved)
	c.optID("new_run", p.NewRun)
	c.optTime("next_retry_at", p.NextRetryAt)
	c.optText("operation_key", p.OperationKey)
	c.optText("outcome", p.Outcome)
	c.optText("outcome_class", p.OutcomeClass)
	c.optText("output_digest", p.OutputDigest)
	c.optID("parent_run", p.ParentRun)
	c.optTrue("pending", p.Pending)
	c.optInteger("people", int64(p.People))
	c.optText("planned_by", p.PlannedBy)
	c.optText("policy", p.Policy)
	c.optInteger("priority", int64(p.Priority))
	c.optText("queue", p.Queue)
	c.optTrue("readjudicated", p.Readjudicated)
	c.optText("reason", p.Reason)
	c.optText("reason_code", p.ReasonCode)
	c.optInteger("recorded", p.Recorded)
	c.optText("recorded_reference", p.RecordedReference)
	c.optInteger("recoveries", int64(p.Recoveries))
	c.optText("reference", p.Reference)
	c.optText("refused_by", p.RefusedBy)
	c.optTrue("remote", p.Remote)
	c.optText("request", p.RequestID)
	c.optText("request_digest", p.RequestDigest)
	c.optTrue("reservation_kept", p.ReservationKept)
	c.optText("retry_key", p.RetryKey)
	c.optInteger("returned", p.Returned)
	c.optTime("returned_at", p.ReturnedAt)
	c.optText("rule", p.Rule)
	c.optTrue("self_declared", p.SelfDeclared)
	c.settlement(p.Settlement)
	c.optText("submission_receipt_id", p.SubmissionReceiptID)
	c.optText("target", p.Target)
	c.optText("trace_id", p.TraceID)
	c.optText("transaction_receipt_id", p.TransactionReceiptID)
	c.optTrue("under_older_key", p.UnderOlderKey)
	c.optText("unique_by", p.UniqueBy)
	c.optTime("unique_until", p.UniqueUntil)
	c.optInteger("unknown_open", int64(p.UnknownOpen))
	c.optText("webhook", p.Webhook)
	c.webhookPosition(p.WebhookPosition)
	c.optText("worker", p.Worker)
}

func (c *canon) failure(f *Failure) {
	if *f == (Failure{}) {
		return
	}
	c.open("error")
	c.prefix = "error."
	c.optText("code", f.Code)
	c.optText("details", f.Details)
	c.optText("message", f.Message)
	c.optText("stack", f.Stack)
	c.optText("type", f.Type)
	c.prefix = ""
	c.close()
}

func (c *canon) webhookPosition(p *WebhookPosition) {
	if p == nil {
		return
	}
	c.open("webhook_position")
	c.prefix = "webhook_position."
	c.integer("after", p.After)
	c.integer("delivered", p.Delivered)
	c.prefix = ""
	c.close()
}

func (c *canon) settlement(s *SettlementSnapshot) {
	if s == nil {
		return
	}
	c.open("settlement")
	c.prefix = "settlement."
	c.integer("asked", s.Asked)
	c.text("dispute_lifecycle_status", s.DisputeLifecycleStatus)
	c.text("escrow_adjudication", s.EscrowAdjudication)
	c.integer("generation", int64(s.Generation))
	c.integer("moved", s.Moved)
	c.integer("refunded", s.Refunded)
	c.integer("released", s.Released)
	c.integer("reserved", s.Reserved)
	c.optInteger("returned", s.Returned)
	c.text("settlement_progression_reason", s.ProgressionReason)
	c.text("settlement_progression_reason_code", s.ProgressionReasonCode)
	c.text("settlement_progression_status", s.ProgressionStatus)
	c.prefix = ""
	c.close()
}

// errNotCanonical says that a body means something but is not written the one way Draft.AppendBody writes it.
var errNotCanonical = errors.New("receipts: body is not in canonical form")

// Parse reads a body. It accepts exactly what Draft.AppendBody writes: an unknown, repeated, misspelt or
// misplaced member, another spelling of a number, time or string, or anything after the end is an error.
func Parse(body []byte) (Entry, error) {
	var w struct {
		Actor   string    `json:"actor"`
		At      time.Time `json:"at"`
		Case    CaseID    `json:"case"`
		Payload Payload   `json:"payload"`
		Run     string    `json:"run"`
		Source  Source    `json:"source"`
		Subtype Subtype   `json:"subtype"`
		Tenant  string    `json:"tenant"`
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return Entry{}, fmt.Errorf("receipts: body is not readable: %w", err)
	}
	e := Entry{Case: w.Case, Tenant: w.Tenant}
	e.Draft = Draft{Subtype: w.Subtype, Actor: w.Actor, At: w.At, Payload: w.Payload}
	if w.Run != "" {
		run, err := ParseRunID(w.Run)
		if err != nil {
			return Entry{}, err
		}
		e.Run = run
	}
	// The decoder is lenient about order, case, repetition and escapes. Comparing with the written form is not.
	again, err := e.Draft.AppendBody(make([]byte, 0, len(body)), e.Case, e.Tenant)
	if err != nil {
		return Entry{}, err
	}
	if !bytes.Equal(again, body) {
		return Entry{}, errNotCanonical
	}
	return e, nil
}
