package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication"
)

// adjudicationAPI has the operations of adjudications.
type adjudicationAPI struct{ *API }

// maxBatchItems is how many adjudications one request may submit.
const maxBatchItems = 1000

// Adjudication describes the body of a submission. Package intake reads the body, as it reads
// the lines of recourse submit.
type Adjudication struct {
	TransactionReceiptID string          `json:"transaction_receipt_id" minLength:"1" maxLength:"128" example:"txr_1"`
	SubmissionReceiptID  string          `json:"submission_receipt_id" minLength:"1" maxLength:"128" example:"sub_1"`
	AdjudicationID       string          `json:"adjudication_id" minLength:"1" maxLength:"128" example:"adj_1"`
	EscrowReference      string          `json:"escrow_reference" minLength:"1" maxLength:"128" example:"esc_1"`
	Tenant               string          `json:"tenant,omitempty" doc:"If given, the tenant of the key"`
	Outcome              string          `json:"outcome" enum:"release,refund"`
	Generation           int             `json:"generation,omitempty" minimum:"1" default:"1" doc:"Higher for a re-adjudication"`
	Amount               Sum             `json:"amount" doc:"Amount to move"`
	Held                 Sum             `json:"held" doc:"Total that the escrow holds"`
	Target               string          `json:"target,omitempty" maxLength:"64" default:"escrow" doc:"The escrow service"`
	Payload              json.RawMessage `json:"payload,omitempty" doc:"An object for the escrow service, without secrets"`
	Simulate             json.RawMessage `json:"simulate,omitempty" doc:"One or more outcomes for the demonstration's escrow service to simulate"`
}

// Sum is an amount of money in the minor unit of its currency.
type Sum struct {
	Minor    int64  `json:"minor" minimum:"1" example:"12500"`
	Currency string `json:"currency" minLength:"3" maxLength:"3" example:"USD"`
}

// Submitted is the result of an accepted adjudication.
type Submitted struct {
	Reply      postadjudication.Reply      `json:"reply" enum:"created,deduplicated,already_executed,superseded"`
	Run        background.RunID            `json:"run_id" format:"uuid" doc:"The new run, or the run that already exists for it; with superseded the run that it made"`
	Case       background.CaseID           `json:"case_id" format:"uuid"`
	State      background.State            `json:"state" doc:"State of the run"`
	Settlement postadjudication.Settlement `json:"settlement" doc:"Settlement of the case now; with superseded its generation is the one that superseded this adjudication"`
}

// Item is the result of one of many adjudications: accepted, or why not.
type Item struct {
	Reply    postadjudication.Reply `json:"reply,omitempty" doc:"Absent when the item could not be read or decided: see problem"`
	Accepted bool                   `json:"accepted"`
	Run      *background.RunID      `json:"run_id,omitempty" format:"uuid"`
	Case     *background.CaseID     `json:"case_id,omitempty" format:"uuid"`
	State    background.State       `json:"state,omitempty"`
	Problem  *Problem               `json:"problem,omitempty"`
}

// Items are the results in the order of the request.
type Items struct {
	Results  []Item `json:"results"`
	Accepted int    `json:"accepted"`
}

type batch struct {
	Adjudications []Adjudication `json:"adjudications" minItems:"1" maxItems:"1000"`
}

type submitInput struct {
	RawBody []byte `contentType:"application/json"`
}

// batchInput declares no body to huma: batchItems returns it.
type batchInput struct{}

type submitOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     Submitted
}

type batchOutput struct{ Body Items }

func (a adjudicationAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "submit", method: http.MethodPost, path: "/adjudications", action: access.Submit, status: http.StatusCreated, maxBody: maxItemBytes, repeatable: true, raw: true,
		summary:     "Submit an adjudication",
		description: "201 if it is new; 200 if it was accepted before and is being executed, was executed or was superseded; 409 with the reply as code and the blocking run if it contradicts the case, is dead-lettered or was cancelled. Safe to repeat.",
	}, a.submit)
	register(a.API, h, operation{
		id: "submit-batch", method: http.MethodPost, path: "/adjudications/batch", action: access.Submit, maxBody: maxBatchBytes, repeatable: true, raw: true, itemized: true,
		summary:     "Submit up to 1000 adjudications",
		description: "Each is decided separately, and its result has the same position as in the request; those of one transaction are decided in order. Safe to repeat. An item has at most 64 KiB, a batch 16 MiB; 429 too_many_batches while 16 MiB of the tenant are being processed.",
	}, a.submitBatch)
	// huma describes a raw body as bytes or not at all, so its schema is set here.
	setBodySchema[Adjudication](h, "/adjudications")
	setBodySchema[batch](h, "/adjudications/batch")
	answers := h.OpenAPI().Paths[Prefix+"/adjudications"].Post.Responses
	answers["200"] = &huma.Response{Description: "It was submitted before", Content: answers["201"].Content}
}

func setBodySchema[T any](h huma.API, path string) {
	schema := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	op := h.OpenAPI().Paths[Prefix+path].Post
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
}

func (a adjudicationAPI) submit(ctx context.Context, c door.Caller, in *submitInput) (*submitOutput, error) {
	var adjudication postadjudication.Adjudication
	var refused *door.Refusal
	if err := tenantlimit.InTurn(ctx, c.Tenant, len(in.RawBody), func() { adjudication, refused = readAdjudication(in.RawBody, c) }); err != nil {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	s, err := a.service.Submit(ctx, adjudication)
	if err != nil {
		return nil, err
	}
	if !s.Reply.Accepted() {
		return nil, declined(s)
	}
	out := &submitOutput{Status: http.StatusOK, Body: Submitted{s.Reply, s.Run, s.Case, s.State, s.Settlement}}
	if s.Reply == postadjudication.Created {
		out.Status, out.Location = http.StatusCreated, Prefix+"/runs/"+s.Run.String()
	}
	return out, nil
}

func readAdjudication(text []byte, c door.Caller) (postadjudication.Adjudication, *door.Refusal) {
	adjudication, wrong := intake.ParseObject(text, c.Tenant)
	if len(wrong) == 0 {
		adjudication.Actor = c.Principal
		return adjudication, nil
	}
	refused := door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "the adjudication is invalid")
	for _, w := range wrong {
		refused.WithField(w.Field, w.Problem)
	}
	return adjudication, refused
}

// declined returns the refusal of an adjudication that was not accepted; the reply is the code.
func declined(s postadjudication.Submitted) *door.Refusal {
	cause := &runError{run: s.Run, cancelledBy: s.Actor, reason: s.Reason}
	if s.Reply == postadjudication.Busy {
		return door.NewRefusal(http.StatusServiceUnavailable, string(s.Reply), "%s", replyDetails[s.Reply]).WithRetryAfter(1).WithCause(cause)
	}
	return door.NewRefusal(http.StatusConflict, string(s.Reply), "%s", replyDetails[s.Reply]).WithCause(cause)
}

var replyDetails = map[postadjudication.Reply]string{
	postadjudication.DeadLettered:     "its run is dead-lettered: fork that run",
	postadjudication.ReconcileFirst:   "it is not known whether its run moved money: reconcile that run first",
	postadjudication.RetryKeyMismatch: "the same generation was submitted with other content",
	postadjudication.StaleGeneration:  "a higher generation was accepted before",
	postadjudication.Cancelled:        "it was accepted and later cancelled: only a higher generation starts a new run",
	postadjudication.CaseEnded:        "the case is settled or refunded by another adjudication",
	postadjudication.Conflicting:      "another outcome, or a higher generation while the run of the case is active",
	postadjudication.TargetChanged:    "a higher generation may not name another target: two people permit it with POST /cases/move or recourse cases move",
	postadjudication.ExceedsHeld:      "the escrow holds less than this amount plus what is already committed",
	postadjudication.EscrowMismatch:   "the escrow was submitted before with another held amount or currency",
	postadjudication.Busy:             "another transaction has locked the case or its escrow: try again",
}

func (a adjudicationAPI) submitBatch(ctx context.Context, c door.Caller, _ *batchInput) (*batchOutput, error) {
	texts := batchItems(ctx)
	items := make([]Item, len(texts))
	var good []postadjudication.Adjudication
	var at []int
	for i, text := range texts {
		var adjudication postadjudication.Adjudication
		var refused *door.Refusal
		if err := tenantlimit.Processors().Do(ctx, c.Tenant, func() { adjudication, refused = readAdjudication(text, c) }); err != nil {
			return nil, err
		}
		if refused != nil {
			items[i].Problem = problemOf(refused)
			continue
		}
		good, at = append(good, adjudication), append(at, i)
	}
	answers, errs := a.service.SubmitBatch(ctx, good)
	out := &batchOutput{Body: Items{Results: items}}
	for i, s := range answers {
		item := &items[at[i]]
		a.fillItem(ctx, item, s, errs[i])
		if item.Accepted {
			out.Body.Accepted++
		}
	}
	return out, nil
}

func (a adjudicationAPI) fillItem(ctx context.Context, item *Item, s postadjudication.Submitted, err error) {
	if err != nil {
		item.Problem = problemOf(a.door.RefusalOf(ctx, err))
		return
	}
	item.Reply, item.Accepted, item.State = s.Reply, s.Reply.Accepted(), s.State
	if !s.Run.IsZero() {
		item.Run, item.Case = &s.Run, &s.Case
	}
	if !item.Accepted {
		item.Problem = problemOf(declined(s))
	}
}

// batchRead is how many bytes of a batch are read at once: each read yields the processor.
const batchRead = 64 << 10

type itemsKey struct{}

// batchItems returns the items of a batch as raw JSON.
func batchItems(ctx context.Context) []json.RawMessage {
	items, _ := ctx.Value(itemsKey{}).([]json.RawMessage)
	return items
}

// readBatch reads a batch item by item and calls next with the items. It reserves the length
// that the request states, or else the maximum, in the batch quota.
func (a *API) readBatch(w http.ResponseWriter, r *http.Request, c door.Caller, next func(*http.Request)) error {
	if err := a.mux.CheckMediaType(r); err != nil {
		return err
	}
	length := r.ContentLength
	if length < 0 || length > maxBatchBytes {
		length = maxBatchBytes
	}
	release, err := a.door.AcquireBatch(c, length)
	if err != nil {
		return err
	}
	defer release()
	var items []json.RawMessage
	if waited := tenantlimit.Processors().DoReading(r.Context(), c.Tenant, http.MaxBytesReader(w, r.Body, maxBatchBytes), func(in io.Reader) {
		items, err = intake.Batch(bufio.NewReaderSize(in, batchRead), "adjudications", maxBatchItems, maxItemBytes)
	}); waited != nil {
		err = waited
	}
	var refused *intake.BatchError
	switch {
	case errors.As(err, &refused) && refused.Malformed:
		return door.NewRefusal(http.StatusBadRequest, "malformed", "the body can't be read").WithField(refused.Field, refused.Problem)
	case errors.As(err, &refused):
		return door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "the batch is invalid").WithField(refused.Field, refused.Problem)
	case err != nil:
		return door.UnreadBody(err, maxBatchBytes)
	}
	if err := a.door.CheckKeyOf(r.Context()); err != nil { // the body may have taken long to arrive
		return err
	}
	next(r.WithContext(context.WithValue(r.Context(), itemsKey{}, items)))
	return nil
}
