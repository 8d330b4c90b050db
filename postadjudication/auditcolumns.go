package postadjudication

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// recordedCase is what the receipts of a case say of the columns that decide, or that a list
// shows, beside those that receipts.Fold gives.
type recordedCase struct {
	runs  map[receipts.RunID]*recordedRun
	order []receipts.RunID // as they were submitted
	first receipts.Terms   // of the first run
	// Of the last submission that was no fork.
	submission, content string
}

// recordedRun is what the receipts say of one run.
type recordedRun struct {
	submitted    receipts.Payload
	submittedAt  time.Time
	terms        receipts.Terms
	reason       string           // reason code of its death
	failure      receipts.Failure // of the last end of an attempt that had one
	cancelAsked  bool
	cancelBy     string // who asked that it end with its attempt
	cancelReason string // and why
}

// readRecorded reads what receipts say. It parses those that say something of the kind.
func readRecorded(rs []receipts.Receipt) (*recordedCase, error) {
	t := &recordedCase{runs: map[receipts.RunID]*recordedRun{}}
	for _, r := range rs {
		run := t.runs[r.Run]
		switch r.Subtype {
		case receipts.Submitted:
			e, err := receipts.Parse(r.Body)
			if err != nil {
				return nil, err
			}
			t.submitted(e)
		case receipts.CancelRequested:
			p, err := r.Payload()
			switch {
			case err != nil:
				return nil, err
			case run != nil:
				run.cancelAsked, run.cancelBy, run.cancelReason = true, r.Actor, p.Reason
			}
		case receipts.RetryScheduled, receipts.AttemptInterrupted, receipts.DeadLettered, receipts.Cancelled, receipts.AttemptSucceeded:
			p, err := r.Payload()
			switch {
			case err != nil:
				return nil, err
			case run == nil:
				continue // Fold refuses a run that was never submitted
			case p.Error != receipts.Failure{}:
				run.failure = p.Error
			}
			if r.Subtype == receipts.DeadLettered {
				run.reason = p.ReasonCode
			}
		}
	}
	return t, nil
}

func (t *recordedCase) submitted(e receipts.Entry) {
	run := &recordedRun{submitted: e.Payload, submittedAt: e.At, terms: e.Terms(e.Case, e.Tenant)}
	if len(t.order) == 0 {
		t.first = run.terms
	}
	run.terms = run.terms.Since(t.first)
	t.runs[e.Run], t.order = run, append(t.order, e.Run)
	if e.Payload.ParentRun.IsZero() {
		t.submission, t.content = e.Payload.SubmissionReceiptID, e.Payload.ContentDigest
	}
}

// auditBinding compares a case and its runs with what the receipts say of the columns
// that decide or that a list shows. A column of which they say nothing is not compared.
func auditBinding(a *Audit, at breakSubject, runs []postgres.Snapshot, rs []receipts.Receipt) {
	t, err := readRecorded(rs)
	if err != nil {
		a.fail(InvariantFold, at, "case %s: %v", runs[0].Case.ID, err)
		return
	}
	for i := range runs {
		r := &runs[i].Run
		run := t.runs[r.ID]
		if run == nil {
			continue // the runs are counted elsewhere
		}
		run.compare(r).fail(a, at.withRun(r.ID), "run "+r.ID.String())
	}
	c := &runs[0].Case
	t.compare(c).fail(a, at, "case "+c.ID.String())
	if c.Kind == postgres.KindSettlement {
		t.auditHeld(a, at, c)
	}
}

// auditHeld compares what the escrow of a case holds with what its submissions said. The cases
// of an escrow share that, so that it is told once for all of them.
func (t *recordedCase) auditHeld(a *Audit, at breakSubject, c *postgres.Case) {
	for _, id := range t.order {
		p := &t.runs[id].submitted
		if !p.ParentRun.IsZero() || p.Held == c.Held {
			continue // a fork says nothing of the escrow
		}
		what := fmt.Sprintf("escrow %s of %s: stored sum held %d, the receipts say %d", c.Reference, at.tenant, c.Held, p.Held)
		a.addOnce(Break{Invariant: InvariantFold, Tenant: at.tenant, Case: at.caseID, What: what, Stored: strconv.FormatInt(c.Held, 10), Expected: strconv.FormatInt(p.Held, 10)})
		return
	}
}

// difference is one thing that is stored otherwise than receipts say.
type difference struct {
	text             string
	stored, recorded string // empty where no two values were compared
}

// differences collects what is stored otherwise than receipts say.
type differences []difference

func (d *differences) compare(what string, stored, recorded any) {
	if stored != recorded {
		d.add(what, fmt.Sprint(stored), fmt.Sprint(recorded))
	}
}

func (d *differences) add(what, stored, recorded string) {
	*d = append(*d, difference{fmt.Sprintf("stored %s %s, the receipts say %s", what, valueOrNothing(stored), valueOrNothing(recorded)), stored, recorded})
}

// fail is a break of the audit for each difference. of names what they are about.
func (d differences) fail(a *Audit, at breakSubject, of string) {
	for _, one := range d {
		a.failDiffering(InvariantFold, at, one.stored, one.recorded, "%s: %s", of, one.text)
	}
}

// valueOrNothing words a value; one that is empty would leave a hole in the sentence.
func valueOrNothing(value string) string { return cmp.Or(value, "nothing") }

// compareSettlement compares what is stored of a case's settlement with the fold of its receipts.
func compareSettlement(stored, recorded settlement.State) (d differences) {
	d.compare("adjudication", stored.Adjudication, recorded.Adjudication)
	d.compare("progression", stored.Progression, recorded.Progression)
	d.compare("reason code", stored.ReasonCode, recorded.ReasonCode)
	d.compare("reason", stored.Reason, recorded.Reason)
	d.compare("dispute lifecycle", stored.Lifecycle, recorded.Lifecycle)
	d.compare("generation", stored.Generation, recorded.Generation)
	d.compare("asked", stored.Asked, recorded.Asked)
	d.compare("moved", stored.Moved, recorded.Moved)
	d.compare("reserved", stored.Reserved, recorded.Reserved)
	d.compare("released", stored.Released, recorded.Released)
	d.compare("refunded", stored.Refunded, recorded.Refunded)
	return d
}

// compareRun compares what is stored of a run's progress with what its receipts tell.
func compareRun(stored background.Run, recorded receipts.RunHistory) (d differences) {
	d.compare("state", string(stored.State), recorded.State)
	d.compare("letter", string(stored.Letter), recorded.Letter)
	d.compare("attempts", stored.Attempt, recorded.Attempts)
	d.compare("attempts that spent budget", stored.BudgetSpent, recorded.BudgetSpent)
	d.compare("lost workers", stored.Recoveries, recorded.Recoveries)
	d.compare("class", string(stored.Class), recorded.Class)
	if stored.State == background.Scheduled && !recorded.NextRetryAt.IsZero() {
		d.compareTimes("due time", stored.DueAt, recorded.NextRetryAt)
	}
	return d
}

// compareTimes are compared to the microsecond, as they are stored.
func (d *differences) compareTimes(what string, stored, recorded time.Time) {
	if !stored.Equal(recorded) {
		d.add(what, stored.Format(time.RFC3339Nano), recorded.Format(time.RFC3339Nano))
	}
}

// compare compares a stored run with its receipts.
func (t *recordedRun) compare(r *background.Run) (d differences) {
	p := &t.submitted
	d.compare("family", r.Family, p.Family)
	d.compare("retry key", r.RetryKey, p.RetryKey)
	d.compare("queue", r.Queue, p.Queue)
	d.compare("target", r.Target, p.Target)
	d.compare("parent run", r.Parent, p.ParentRun)
	policy, err := retrypolicy.Parse(p.Policy)
	if err != nil {
		d = append(d, difference{text: err.Error()})
	}
	d.compare("policy", r.Policy.Encode(), policy.Encode())
	d = append(d, t.compareRequest(r)...)
	switch r.State {
	case background.Pending:
		d.compareTimes("due time", r.DueAt, t.submittedAt)
	case background.DeadLettered:
		d.compare("reason", r.Reason, t.reason)
	}
	if r.Failure != nil || t.failure.Type != "" {
		f := r.Failure
		if f == nil {
			f = &background.Failure{}
		}
		d.compare("failure", receipts.Failure{Type: f.Type, Code: f.Code, Message: f.Message}, receipts.Failure{Type: t.failure.Type, Code: t.failure.Code, Message: t.failure.Message})
	}
	if t.cancelAsked { // a request without a receipt is looked for among all runs
		d.compare("request to cancel", r.CancelRequested, true)
		d.compare("who asked to cancel", r.CancelBy, t.cancelBy)
		d.compare("why to cancel", r.CancelReason, t.cancelReason)
	}
	return d
}

// compareRequest compares what the run sends with its receipts. The payload of a task that
// moves no money goes with its letter.
func (t *recordedRun) compareRequest(r *background.Run) (d differences) {
	if r.Letter == background.LetterPurged && t.terms.OperationKey == [32]byte{} && len(r.Payload) == 0 {
		return nil
	}
	stored := *r
	stored.Terms = &t.terms
	if err := checkBinding(&stored); err != nil {
		return differences{{text: err.Error()}}
	}
	if t.terms.OperationKey == [32]byte{} {
		return nil
	}
	if _, err := checkTerms(&stored); err != nil {
		return differences{{text: err.Error()}}
	}
	content, err := contentOf(r.Payload, r.Target)
	if err != nil {
		return differences{{text: err.Error()}}
	}
	if t.terms.ContentDigest != [32]byte{} {
		d.compare("content", fmt.Sprintf("%x", content), fmt.Sprintf("%x", t.terms.ContentDigest))
	}
	return d
}

// compare compares a stored case with its receipts.
func (t *recordedCase) compare(c *postgres.Case) (d differences) {
	if len(t.order) == 0 {
		return nil
	}
	active := t.order[len(t.order)-1]
	last := t.runs[active]
	d.compare("run", c.ActiveRun, active)
	d.compare("epoch", c.Epoch, last.submitted.Epoch)
	if c.Kind != postgres.KindSettlement {
		d.compare("subject", c.Subject, last.submitted.Family+":"+last.submitted.RetryKey)
		return d
	}
	d.compare("content", fmt.Sprintf("%x", c.Content), t.content)
	d.compare("submission", c.Submission, t.submission)
	for _, id := range t.order {
		p := &t.runs[id].submitted
		d.compare("subject", c.Subject, p.TransactionReceiptID)
		if !p.ParentRun.IsZero() {
			continue // says nothing of the escrow
		}
		d.compare("escrow", c.Reference, p.EscrowReference)
		d.compare("currency held", c.Currency, p.Currency)
	}
	return d
}
