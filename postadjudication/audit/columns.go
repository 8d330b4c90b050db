package audit

import (
	"fmt"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// columnsOfCase holds what the receipts of a case say about its columns. It is derived besides receipts.Fold: that is
// public and returns how the runs have progressed, not every column of the schema.
type columnsOfCase struct {
	runs  map[receipts.RunID]*columnsOfRun
	order []receipts.RunID // in order of submission
	first receipts.Terms   // of the first run
	// Of the last submission other than a fork.
	submission, content string
	// Of a unique job; receipts of versions before have neither.
	uniqueBy    string
	uniqueUntil time.Time
}

// columnsOfRun holds what the receipts say about the columns of one run.
type columnsOfRun struct {
	submitted       receipts.Payload
	submittedAt     time.Time
	activatedAt     time.Time // zero: it was not, or need not be
	terms           receipts.Terms
	reason          string           // reason code of its death
	failure         receipts.Failure // of the last attempt that ended with one
	outputDigest    string           // of what its worker returned
	cancelRequested bool
	cancelBy        string // who asked that the run end with its current attempt
	cancelReason    string // why
}

// dueAt returns from when on the first attempt may start.
func (t *columnsOfRun) dueAt() time.Time {
	switch p := &t.submitted; {
	case p.Pending && t.activatedAt.IsZero():
		return neverDue
	case p.Pending:
		return t.activatedAt
	case !p.NextRetryAt.IsZero():
		return p.NextRetryAt
	}
	return t.submittedAt
}

// neverDue is the stored due time of a run that waits to be activated.
var neverDue = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// readColumns returns what the receipts of a case say about its columns.
func readColumns(rs []receipts.Receipt) (*columnsOfCase, error) {
	t := &columnsOfCase{runs: map[receipts.RunID]*columnsOfRun{}}
	for _, r := range rs {
		run := t.runs[r.Run]
		switch {
		case r.Subtype == receipts.Submitted:
			e, err := r.Entry()
			if err != nil {
				return nil, err
			}
			t.submitted(e)
		case r.Subtype == receipts.CancelRequested:
			p, err := r.Payload()
			switch {
			case err != nil:
				return nil, err
			case run != nil:
				run.cancelRequested, run.cancelBy, run.cancelReason = true, r.Actor, p.Reason
			}
		case r.Subtype == receipts.Activated:
			if run != nil {
				run.activatedAt = r.At
			}
		case r.Subtype.EndsAttempt():
			p, err := r.Payload()
			switch {
			case err != nil:
				return nil, err
			case run == nil:
				continue // Fold reports a run without a submitted receipt
			case p.Error != receipts.Failure{}:
				run.failure = p.Error
			}
			run.outputDigest = p.OutputDigest
			if r.Subtype == receipts.DeadLettered || r.Subtype == receipts.Discarded {
				run.reason = p.ReasonCode
			}
		}
	}
	return t, nil
}

func (t *columnsOfCase) submitted(e receipts.Entry) {
	run := &columnsOfRun{submitted: e.Payload, submittedAt: e.At, terms: e.Terms(e.Case, e.Tenant)}
	if len(t.order) == 0 {
		t.first = run.terms
	}
	if !e.Payload.ParentRun.IsZero() && run.terms.Generation == t.first.Generation {
		run.terms.ContentDigest = t.first.ContentDigest // the receipt of a fork has none
	}
	t.runs[e.Run], t.order = run, append(t.order, e.Run)
	if e.Payload.ParentRun.IsZero() {
		t.submission, t.content = e.Payload.SubmissionReceiptID, e.Payload.ContentDigest
		t.uniqueBy, t.uniqueUntil = e.Payload.UniqueBy, e.Payload.UniqueUntil
	} else if t.uniqueBy != "" && e.Payload.UniqueBy != "" {
		t.uniqueBy = e.Payload.UniqueBy
	}
}

// auditColumns compares columns of a case and its runs with the receipts: those by which something is
// decided, and those that a list shows. A column that the receipts don't mention is not compared.
func auditColumns(a *Report, at breakSubject, c *StoredCase, rs []receipts.Receipt) {
	t, err := readColumns(rs)
	if err != nil {
		a.fail(InvariantFold, at, "case %s: %v", c.ID, err)
		return
	}
	for i := range c.Runs {
		r := &c.Runs[i]
		run := t.runs[r.ID]
		if run == nil {
			continue // auditRuns compares the number of runs
		}
		run.compare(c, r).fail(a, at.withRun(r.ID), "run "+r.ID.String())
	}
	t.compare(c).fail(a, at, "case "+c.ID.String())
	if c.Kind == stored.KindSettlement {
		t.auditHeld(a, at, c)
	}
}

// auditHeld compares the sum that a case's escrow holds with the submissions. All cases of an
// escrow share that sum, so a difference is reported once.
func (t *columnsOfCase) auditHeld(a *Report, at breakSubject, c *StoredCase) {
	for _, id := range t.order {
		p := &t.runs[id].submitted
		if !p.ParentRun.IsZero() || p.Held == c.Held {
			continue // receipts of forks don't mention the escrow
		}
		what := fmt.Sprintf("escrow %s of %s: stored sum held %d, the receipts say %d", c.Reference, at.tenant, c.Held, p.Held)
		a.addOnce(Break{Invariant: InvariantFold, Tenant: at.tenant, Case: at.caseID, What: what, Stored: strconv.FormatInt(c.Held, 10), Expected: strconv.FormatInt(p.Held, 10)})
		return
	}
}

// compareSettlement compares a stored settlement with the fold of its receipts.
func compareSettlement(row, recorded settlement.State) (d differences) {
	d.compare("adjudication", row.Outcome, recorded.Outcome)
	d.compare("progression", row.Progression, recorded.Progression)
	d.compare("reason code", row.ReasonCode, recorded.ReasonCode)
	d.compare("reason", row.Reason, recorded.Reason)
	d.compare("dispute lifecycle", row.Lifecycle, recorded.Lifecycle)
	d.compare("generation", row.Generation, recorded.Generation)
	d.compare("asked", row.Asked, recorded.Asked)
	d.compare("moved", row.Moved, recorded.Moved)
	d.compare("reserved", row.Reserved, recorded.Reserved)
	d.compare("released", row.Released, recorded.Released)
	d.compare("refunded", row.Refunded, recorded.Refunded)
	d.compare("returned", row.Returned, recorded.Returned)
	return d
}

// compare compares a stored run with its receipts.
func (t *columnsOfRun) compare(c *StoredCase, r *StoredRun) (d differences) {
	p := &t.submitted
	d.compare("family", r.Family, p.Family)
	d.compare("retry key", r.RetryKey, p.RetryKey)
	d.compare("queue", r.Queue, p.Queue)
	d.compare("target", r.Target, p.Target)
	d.compare("parent run", r.Parent, p.ParentRun)
	d.compare("policy", r.Policy, p.Policy)
	d.compare("remote", r.Remote, p.Remote)
	d.compare("priority", r.Priority, p.Priority)
	d.compareTimes("expiry", r.ExpiresAt, p.ExpiresAt)
	d.compare("digest of the output", r.OutputDigest, t.outputDigest)
	d = append(d, t.compareRequest(c, r)...)
	switch r.State {
	case receipts.StatePending:
		d.compareTimes("due time", r.DueAt, t.dueAt())
	case receipts.StateDeadLettered, receipts.StateDiscarded:
		d.compare("reason", r.Reason, t.reason)
	}
	if r.Failure != (receipts.Failure{}) || t.failure.Type != "" {
		d.compare("failure", r.Failure, receipts.Failure{Type: t.failure.Type, Code: t.failure.Code, Message: t.failure.Message})
	}
	if t.cancelRequested { // trail.CheckControl finds a request without a receipt
		d.compare("request to cancel", r.CancelRequested, true)
		d.compare("who asked to cancel", r.CancelBy, t.cancelBy)
		d.compare("why to cancel", r.CancelReason, t.cancelReason)
	}
	return d
}

// compareRequest compares a run's request with its receipts. The payload of a plain task is
// deleted with its letter.
func (t *columnsOfRun) compareRequest(c *StoredCase, r *StoredRun) (d differences) {
	if r.Letter == receipts.LetterPurged && t.terms.OperationKey == [32]byte{} && len(r.Request) == 0 {
		return nil
	}
	row := binding.Stored{
		Run: r.ID, Case: c.ID, Tenant: c.Tenant, Target: r.Target, OperationKey: r.OperationKey, Request: r.Request, Queue: r.Queue, Remote: r.Remote,
		Closed: !r.IsActive(), // an earlier version could fork it into another queue
	}
	if err := binding.Check(&row, &t.terms); err != nil {
		return differences{{text: err.Error()}}
	}
	if t.terms.OperationKey == [32]byte{} {
		return nil
	}
	if err := binding.CheckPayment(r.Request, &t.terms); err != nil {
		return differences{{text: err.Error()}}
	}
	content, err := binding.ContentOf(r.Request, r.Target)
	if err != nil {
		return differences{{text: err.Error()}}
	}
	if t.terms.ContentDigest != [32]byte{} {
		d.compare("content", fmt.Sprintf("%x", content), fmt.Sprintf("%x", t.terms.ContentDigest))
	}
	return d
}

// compare compares a stored case with its receipts.
func (t *columnsOfCase) compare(c *StoredCase) (d differences) {
	if len(t.order) == 0 {
		return nil
	}
	active := t.order[len(t.order)-1]
	last := t.runs[active]
	d.compare("run", c.ActiveRun, active)
	d.compare("epoch", c.Epoch, last.submitted.Epoch)
	if c.Kind != stored.KindSettlement {
		d.compare("subject", c.Subject, last.submitted.Family+":"+last.submitted.RetryKey)
		if t.uniqueBy != "" {
			d.compare("digest of what it is unique by", c.UniqueBy, t.uniqueBy)
			d.compareTimes("end of its being unique", c.UniqueUntil, t.uniqueUntil)
		}
		return d
	}
	d.compare("content", fmt.Sprintf("%x", c.Content), t.content)
	d.compare("submission", c.Submission, t.submission)
	for _, id := range t.order {
		p := &t.runs[id].submitted
		d.compare("subject", c.Subject, p.TransactionReceiptID)
		if !p.ParentRun.IsZero() {
			continue // receipts of forks don't mention the escrow
		}
		d.compare("escrow", c.Reference, p.EscrowReference)
		d.compare("currency held", c.Currency, p.Currency)
	}
	return d
}
