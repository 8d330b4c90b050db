package api

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// caseAPI has the operations of cases and their receipts.
type caseAPI struct{ *API }

type caseInput struct {
	Case string `path:"case" format:"uuid"`
}

type transactionInput struct {
	Transaction string `path:"transaction" minLength:"1" maxLength:"128"`
}

type casesInput struct {
	States      []string `query:"state" doc:"Only cases in one of these states" enum:"pending,in-progress,review-needed,approved-for-settlement,partially-settled,settled,dispute-ready,refunded"`
	Reserved    bool     `query:"reserved" doc:"Only cases with money reserved"`
	Transaction string   `query:"transaction_receipt_id" maxLength:"128" doc:"Only the case of this transaction"`
	NoLetter    bool     `query:"without_letter" doc:"Only cases with money reserved, but no live run and no open dead letter"`
	End         string   `query:"ends_with" minLength:"6" maxLength:"128" doc:"Only the cases whose transaction, or the id of a run of theirs, ends so"`
	After       string   `query:"after" doc:"next of the previous page"`
	Limit       int      `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type casesOutput struct{ Body casestatus.Page }

type freeInput struct {
	Body struct {
		States      []string `json:"states,omitempty" doc:"Cases in one of these states" enum:"review-needed,partially-settled,dispute-ready"`
		Transaction string   `json:"transaction_receipt_id,omitempty" minLength:"1" maxLength:"128" doc:"The case of this transaction"`
		NoLetter    bool     `json:"without_letter,omitempty" doc:"Cases with money reserved, but no live run and no open dead letter"`
		All         bool     `json:"all,omitempty" doc:"All cases with money reserved; instead of the others"`
		Limit       int      `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"Maximum number of cases that can be freed, the oldest first; absent: all, at most 1000"`
		Reason      string   `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipts"`
		Reference   string   `json:"reference" minLength:"1" maxLength:"255" doc:"Where one can check that nothing will be paid for them"`
	}
}

type moveInput struct {
	Body struct {
		Transaction string `json:"transaction_receipt_id" minLength:"1" maxLength:"128" doc:"The case of this transaction"`
		Target      string `json:"target" minLength:"1" maxLength:"128" doc:"The target that its next generation may name"`
		Unserved    bool   `json:"unserved,omitempty" doc:"Confirms a target that no running process serves: one will"`
		Reason      string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the plan"`
	}
}

type caseOutput struct{ Body casestatus.Case }

type receiptsInput struct {
	Case   string `path:"case" format:"uuid"`
	After  int64  `query:"after" minimum:"0" doc:"Begin after this sequence number"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Verify bool   `query:"verify" doc:"Also verify the whole chain of the case and its stored state"`
}

// Receipt is a receipt of the trail. Payload holds its details, and Body the exact text that
// the link covers.
type Receipt struct {
	ID       string            `json:"id"`
	Sequence int64             `json:"sequence"`
	Case     background.CaseID `json:"case_id" format:"uuid"`
	Run      string            `json:"run_id,omitempty" format:"uuid"`
	Source   receipts.Source   `json:"source"`
	Subtype  receipts.Subtype  `json:"subtype"`
	Actor    string            `json:"actor"`
	At       time.Time         `json:"at"`
	Payload  json.RawMessage   `json:"payload"`
	Body     string            `json:"body" doc:"RFC 8785 canonical JSON"`
	Link     string            `json:"link" doc:"Hex SHA-256 over the previous link, the sequence and the body's SHA-256"`
}

// Trail is a page of receipts.
type Trail struct {
	Receipts     []Receipt     `json:"receipts"`
	Next         int64         `json:"next" doc:"after of the next page"`
	More         bool          `json:"more" doc:"A page of long receipts ends before limit"`
	Verification *Verification `json:"verification,omitempty"`
}

// Verification is the result of verifying a case.
type Verification struct {
	OK       bool              `json:"ok"`
	Receipts int64             `json:"receipts" doc:"Number of receipts checked"`
	Head     string            `json:"head,omitempty" doc:"Link of the last receipt, in hex: store it elsewhere to detect a truncated chain"`
	Sequence int64             `json:"sequence" doc:"Sequence of the last receipt"`
	Broken   map[string]string `json:"broken" doc:"For each broken rule, its first violation"`

	Breaks     []audit.Break `json:"breaks" doc:"The violations, 10,000 at most"`
	NotChecked []string      `json:"not_checked,omitempty" doc:"Rules that one case can't be checked by: ok says nothing of them"`
}

type receiptsOutput struct{ Body Trail }

type findReceiptsInput struct {
	Actor   string    `query:"actor" maxLength:"128" doc:"Only what this actor did, a kind and a name" example:"user:ada"`
	Subtype string    `query:"subtype" maxLength:"64" doc:"Only receipts of this subtype" example:"reconciled"`
	Since   time.Time `query:"since" doc:"Only receipts written at this time or after"`
	Until   time.Time `query:"until" doc:"Only receipts written before this time"`
	After   int64     `query:"after" minimum:"0" doc:"next of the previous page"`
	Limit   int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// ReceiptsFound is a page of receipts of a tenant.
type ReceiptsFound struct {
	Receipts []Receipt `json:"receipts" doc:"Receipts that all parameters select, in the order of events"`
	Next     int64     `json:"next" doc:"after of the next page"`
	Scanned  int       `json:"scanned" doc:"Number of receipts that were compared with the parameters"`
	Complete bool      `json:"complete" doc:"No receipts are left"`
}

type findReceiptsOutput struct{ Body ReceiptsFound }

func (a caseAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "get-case", method: http.MethodGet, path: "/cases/{case}", action: access.Read, summary: "Get everything about a case",
	}, a.caseByID)
	register(a.API, h, operation{
		id: "find-case", method: http.MethodGet, path: "/transactions/{transaction}", action: access.Read, summary: "Find the case of a transaction",
	}, a.findCase)
	register(a.API, h, operation{
		id: "list-cases", method: http.MethodGet, path: "/cases", action: access.List, summary: "List cases, the oldest first",
		description: "Includes cases whose dead letter was purged, with why no run of theirs is active and what may be done.",
	}, a.listCases)
	register(a.API, h, operation{
		id: "plan-free", method: http.MethodPost, path: "/cases/free", action: access.BulkPlan, status: http.StatusCreated, summary: "Plan to free the money that cases have reserved",
		description: "For adjudications that will not be carried out: of dead letters and of their cancelled forks. Another person runs the plan with run-bulk. A case is refused while a run of it is active, its money is unknown, a call may be outstanding, or its letter is held. A freed case is review-needed, and a higher generation may start a new run. If no case is selected no plan and no receipt is made: 422 nothing_selected.",
	}, a.planFree)
	register(a.API, h, operation{
		id: "plan-move", method: http.MethodPost, path: "/cases/move", action: access.BulkPlan, status: http.StatusCreated, summary: "Plan to permit another target for the next generation of a case",
		description: "A higher generation that names another escrow service than the newest run of its case is refused (409 target_changed), until another person has run such a plan with run-bulk. The plan permits the generation that follows that run only, and changes no case. The gates for a higher generation stay.",
	}, a.planMove)
	register(a.API, h, operation{
		id: "list-receipts", method: http.MethodGet, path: "/cases/{case}/receipts", action: access.Receipts, summary: "List, and verify, the receipts of a case",
	}, a.listReceipts)
	register(a.API, h, operation{
		id: "find-receipts", method: http.MethodGet, path: "/receipts", action: access.Receipts, summary: "Find receipts of all cases and operation logs of the tenant",
		description: "In the order of events, the oldest first: who did what and when. A page compares at most 10,000 receipts with the parameters, so it may have few receipts or none: go on with after=next until complete. A receipt has its place in the order some moments after it is written.",
	}, a.findReceipts)
}

func (a caseAPI) findReceipts(ctx context.Context, c door.Caller, in *findReceiptsInput) (*findReceiptsOutput, error) {
	if in.Subtype != "" && receipts.Subtype(in.Subtype).Source() == "" {
		return nil, &refusal.FieldError{Field: "subtype", Problem: "is no subtype of a receipt"}
	}
	found, err := a.service.FindReceipts(ctx, c.Tenant, postadjudication.ReceiptFilter{
		Actor: in.Actor, Subtype: receipts.Subtype(in.Subtype), Since: in.Since, Until: in.Until,
	}, in.After, in.Limit)
	if err != nil {
		return nil, err
	}
	out := ReceiptsFound{Receipts: make([]Receipt, len(found.Receipts)), Next: found.Next, Scanned: found.Scanned, Complete: found.Complete}
	for i, r := range found.Receipts {
		if out.Receipts[i], err = receiptOf(r); err != nil {
			return nil, err
		}
	}
	return &findReceiptsOutput{out}, nil
}

func (a caseAPI) caseByID(ctx context.Context, c door.Caller, in *caseInput) (*caseOutput, error) {
	id, err := parseCaseID(in.Case)
	if err != nil {
		return nil, err
	}
	s, err := a.service.CaseByID(ctx, c.Tenant, id)
	return &caseOutput{s}, err
}

func (a caseAPI) listCases(ctx context.Context, c door.Caller, in *casesInput) (*casesOutput, error) {
	f := casestatus.Filter{States: in.States, Reserved: in.Reserved, Transaction: in.Transaction, WithoutLetter: in.NoLetter, End: in.End}
	page, err := a.service.As(c.Tenant, "").Cases.List(ctx, f, in.After, in.Limit)
	return &casesOutput{page}, bulkProblem(err)
}

func (a caseAPI) planFree(ctx context.Context, c door.Caller, in *freeInput) (*bulkPlannedOutput, error) {
	b, err := a.service.As(c.Tenant, c.Principal).Bulk.PlanFree(ctx, bulk.FreeRequest{
		Filter: casestatus.Filter{States: in.Body.States, Transaction: in.Body.Transaction, WithoutLetter: in.Body.NoLetter}, All: in.Body.All, Limit: in.Body.Limit, Reason: in.Body.Reason, Reference: in.Body.Reference, Request: door.RequestID(ctx),
	})
	return &bulkPlannedOutput{Location: Prefix + "/bulk/" + b.ID.String(), Body: b}, err
}

func (a caseAPI) planMove(ctx context.Context, c door.Caller, in *moveInput) (*bulkPlannedOutput, error) {
	b, err := a.service.As(c.Tenant, c.Principal).Bulk.PlanMove(ctx, bulk.MoveRequest{Transaction: in.Body.Transaction, Target: in.Body.Target, Reason: in.Body.Reason, Unserved: in.Body.Unserved, Request: door.RequestID(ctx)})
	return &bulkPlannedOutput{Location: Prefix + "/bulk/" + b.ID.String(), Body: b}, err
}

func (a caseAPI) findCase(ctx context.Context, c door.Caller, in *transactionInput) (*caseOutput, error) {
	s, err := a.service.Case(ctx, c.Tenant, in.Transaction)
	return &caseOutput{s}, err
}

func (a caseAPI) listReceipts(ctx context.Context, c door.Caller, in *receiptsInput) (*receiptsOutput, error) {
	id, err := parseCaseID(in.Case)
	if err != nil {
		return nil, err
	}
	found, more, err := a.receiptPage(ctx, c.Tenant, id, in.After, in.Limit)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 { // after the last one, or no such case
		first, err := a.service.Receipts(ctx, c.Tenant, id, 0, 1)
		if err == nil {
			err = notFoundIfNone(first)
		}
		if err != nil {
			return nil, err
		}
	}
	out := &receiptsOutput{Trail{Receipts: make([]Receipt, len(found)), Next: in.After, More: more}}
	for i, r := range found {
		if out.Body.Receipts[i], err = receiptOf(r); err != nil {
			return nil, err
		}
		out.Body.Next = r.Seq
	}
	if in.Verify {
		out.Body.Verification, err = a.verify(ctx, c, id)
	}
	return out, err
}

const (
	// maxReceiptBytes bounds the bodies of a page of receipts, but for the first. An answer has each about twice.
	maxReceiptBytes = 4 << 20
	receiptsPerRead = 100
)

// receiptPage reads receipts of a case, and reports whether there may be more.
func (a caseAPI) receiptPage(ctx context.Context, tenant string, id background.CaseID, after int64, limit int) (found []receipts.Receipt, more bool, err error) {
	for size := 0; len(found) < limit; {
		asked := min(receiptsPerRead, limit-len(found))
		part, err := a.service.Receipts(ctx, tenant, id, after, asked)
		if err != nil {
			return nil, false, err
		}
		for _, r := range part {
			if size += len(r.Body); size > maxReceiptBytes && len(found) > 0 {
				return found, true, nil
			}
			found, after = append(found, r), r.Seq
		}
		if len(part) < asked {
			return found, false, nil
		}
	}
	return found, true, nil
}

func notFoundIfNone(first []receipts.Receipt) error {
	if len(first) == 0 {
		return refusal.ErrNotFound
	}
	return nil
}

func receiptOf(r receipts.Receipt) (Receipt, error) {
	var body struct {
		Payload json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return Receipt{}, err
	}
	out := Receipt{
		ID: r.ID(), Sequence: r.Seq, Case: r.Case, Source: r.Source, Subtype: r.Subtype, Actor: r.Actor, At: r.At, Payload: body.Payload,
		Body: string(r.Body), Link: hex.EncodeToString(r.Link[:]),
	}
	if !r.Run.IsZero() {
		out.Run = r.Run.String()
	}
	return out, nil
}

func (a caseAPI) verify(ctx context.Context, c door.Caller, id background.CaseID) (*Verification, error) {
	report, err := audit.Case(ctx, a.service.AuditReader(), c.Tenant, id, a.service.AuditQuery())
	if errors.Is(err, audit.ErrNotFound) {
		err = refusal.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	head := report.Heads[id]
	return &Verification{OK: report.OK(), Receipts: report.Receipts, Head: hex.EncodeToString(head.Link[:]), Sequence: head.Seq, Broken: report.Broken, Breaks: report.Breaks, NotChecked: report.NotChecked}, nil
}

func parseCaseID(text string) (background.CaseID, error) {
	id, err := receipts.ParseCaseID(text)
	if err != nil {
		return id, door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "a case is named by its id").WithField("case", "is no UUID")
	}
	return id, nil
}
