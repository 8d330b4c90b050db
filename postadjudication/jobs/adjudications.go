package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/strictjson"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/referencepolicy"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// AdjudicationType is the type of the jobs that are adjudications. Submit creates them, for a target
// with escrow.RemotePrefix; their only argument is the request, and their id that of their run. The id
// of an earlier run of the same lineage is answered with the newest one.
const AdjudicationType = "settlement.execute"

// PaymentField is the member of an ack that says what was paid. The *refusal.FieldError of one that does
// not say it names that member, or one in it.
const PaymentField = "result"

// What the failure of a worker has if the adjudication was not executed: a code that begins with
// notExecutedCode, or the member outcomeClassName in its details.
const (
	notExecutedCode  = "x_not_executed"
	outcomeClassName = "outcome_class"
)

// envelopeOf returns what a worker gets of an adjudication: the request, byte for byte, and under meta
// what identifies the order and bounds it. notAfter is zero where there is no lease. It is written so that
// times compare as texts.
func envelopeOf(r *background.Run, notAfter time.Time) json.RawMessage {
	b := make([]byte, 0, 512+len(r.Payload))
	member := func(name, value string) { b = receipts.AppendText(append(b, name...), value) }
	member(`{"specversion":"1.0","type":"`+AdjudicationType+`","queue":`, r.Queue)
	b = append(append(append(b, `,"args":[`...), r.Payload...), ']')
	member(`,"meta":{"recourse.operation_key":`, escrow.OperationKey(r.Operation).String())
	member(`,"recourse.request_sha256":`, binding.RequestDigest(r.Payload))
	member(`,"recourse.run_id":`, r.ID.String())
	b = strconv.AppendInt(append(b, `,"recourse.attempt":`...), int64(r.Attempt), 10)
	if r.Terms != nil {
		b = strconv.AppendInt(append(b, `,"recourse.generation":`...), int64(r.Terms.Generation), 10)
	}
	if !notAfter.IsZero() {
		member(`,"recourse.not_after":`, notAfter.UTC().Truncate(time.Millisecond).Format("2006-01-02T15:04:05.000Z"))
	}
	return append(b, "}}"...)
}

// fetchedAdjudication returns an adjudication that a worker holds.
func fetchedAdjudication(c background.Claimed) Fetched {
	out := Fetched{Visibility: c.Lease.Length, Status: statusOf(c.Run)}
	held := c.Lease.Length
	if c.Lease.Limit > 0 {
		held = min(held, c.Lease.Limit)
	}
	out.Payload, out.StartedAt, out.EnqueuedAt = envelopeOf(&c.Run, c.Lease.At.Add(held)), c.Lease.At, c.SubmittedAt
	if out.CreatedAt = c.SubmittedAt; !c.Run.Parent.IsZero() {
		out.CreatedAt = c.OpenedAt
	}
	return out
}

// adjudications are the jobs that are adjudications.
type adjudications struct{ Jobs }

// adjudications returns the jobs that are adjudications.
func (j Jobs) adjudications() adjudications { return adjudications{j} }

// isAdjudication reports whether a run is an adjudication that remote workers fetch.
func isAdjudication(r *background.Run) bool { return r.Remote && r.Family == casework.Family }

// find reads the run of an adjudication by its id.
func (j adjudications) find(ctx context.Context, id string) (journal.Snapshot, error) {
	run, err := receipts.ParseRunID(id)
	if err != nil {
		return journal.Snapshot{}, refusal.ErrNotFound
	}
	snap, err := j.s.applier.OwnRun(ctx, j.tenant, run)
	if errors.Is(err, background.ErrNotFound) || err == nil && !isAdjudication(&snap.Run) {
		err = refusal.ErrNotFound
	}
	return snap, err
}

// takes returns the run of an adjudication that has an id, or refusal.ErrNotFound. Unlike find it is cheap for
// many at the same time.
func (j adjudications) takes(id string) (journal.Snapshot, error) {
	run, err := receipts.ParseRunID(id)
	if err != nil {
		return journal.Snapshot{}, refusal.ErrNotFound
	}
	snap, err := j.s.journal.Cases.SnapshotInBatch(run)
	known := err == nil || errors.Is(err, refusal.ErrUnreadable)
	if errors.Is(err, background.ErrNotFound) || known && (snap.Run.Tenant != j.tenant || !isAdjudication(&snap.Run)) {
		err = refusal.ErrNotFound
	}
	return *snap, err
}

// lineage returns the runs of an adjudication, the oldest first.
func (j adjudications) lineage(ctx context.Context, r *background.Run) ([]background.RunID, error) {
	if r.Parent.IsZero() && r.Letter != background.LetterForked {
		return []background.RunID{r.ID}, nil
	}
	all, err := j.s.journal.Cases.Runs(ctx, j.tenant, r.Case)
	if err != nil {
		return nil, err
	}
	return casestatus.LineageOf(all, r.ID), nil
}

// newest reads the newest run of the lineage of an adjudication.
func (j adjudications) newest(ctx context.Context, id string) (journal.Snapshot, error) {
	snap, err := j.find(ctx, id)
	if err != nil || snap.Run.Letter != background.LetterForked {
		return snap, err
	}
	line, err := j.lineage(ctx, &snap.Run)
	if err != nil {
		return snap, err
	}
	return j.s.applier.OwnRun(ctx, j.tenant, line[len(line)-1])
}

// paymentOf reads what an ack says was paid. It must be a sum that the run may have moved, in its
// currency, with the reference of the payment service.
func paymentOf(ctx context.Context, policy *referencepolicy.Store, r *background.Run, output json.RawMessage) (background.Result, error) {
	var said struct {
		Moved *struct {
			Minor    *int64  `json:"minor"`
			Currency *string `json:"currency"`
		} `json:"moved"`
		Reference *string `json:"reference"`
	}
	wrong := func(field, problem string) (background.Result, error) {
		return background.Result{}, &refusal.FieldError{Field: field, Problem: problem}
	}
	t := r.Terms
	switch err := strictjson.Decode(output, &said); {
	case len(output) == 0 || err != nil || said.Moved == nil || said.Moved.Minor == nil || said.Moved.Currency == nil:
		return wrong(PaymentField, `must be {"moved":{"minor":1,"currency":"EUR"},"reference":"..."}: what was paid, as a whole number of minor units`)
	case t == nil:
		return background.Result{}, refusal.ErrUnreadable
	case *said.Moved.Currency != t.Currency:
		return wrong(PaymentField+".moved.currency", "must be the currency of the adjudication")
	case !casework.IsBelievable(*said.Moved.Minor, t.Amount):
		return wrong(PaymentField+".moved.minor", "must be the sum that was paid, of at least 1 minor unit; one that is far beyond what was asked takes a person's finding")
	case said.Reference == nil || *said.Reference == "" || len(*said.Reference) > validate.MaxReference:
		return wrong(PaymentField+".reference", "must be the reference of the payment, 1 to 255 bytes")
	}
	reference := *said.Reference
	if validate.Clean(reference, validate.MaxReference) != reference {
		canonical, taken, err := policy.Take(ctx, r.Tenant, reference)
		switch {
		case err != nil:
			return background.Result{}, err // the worker repeats its answer: a refusal would lose the reference
		case !taken:
			return wrong(PaymentField+".reference", "can't be recorded as it is: it looks like a secret, or has control characters")
		}
		reference = canonical
	}
	return background.Result{Class: background.Executed, Moved: *said.Moved.Minor, Reference: reference}, nil
}

// statesNotExecuted reports whether a worker states that an attempt moved nothing. Without that the
// outcome is unknown.
func statesNotExecuted(why background.Failure) bool {
	var details map[string]any
	if json.Unmarshal([]byte(why.Details), &details) == nil && details[outcomeClassName] != nil {
		return details[outcomeClassName] == string(background.NotExecuted) // whatever its code says
	}
	rest, begins := strings.CutPrefix(why.Code, notExecutedCode)
	return begins && (rest == "" || rest[0] == '_' || rest[0] == '.')
}

// failureOf returns the result of an attempt that a worker says has failed.
func failureOf(why background.Failure, retryable bool, end background.EndOrder) background.Result {
	out := background.Result{Class: background.Unknown, Retry: retryable, Failure: &why, End: end}
	if statesNotExecuted(why) {
		out.Class = background.NotExecuted
	}
	return out
}

// answer ends the attempt of an adjudication that a worker answers, or records what it says
// too late.
func (j adjudications) answer(ctx context.Context, snap journal.Snapshot, a Answer, asked string, end endAttempt) (Status, error) {
	attempt, err := j.answeredAttempt(ctx, snap, a)
	if err != nil {
		return Status{}, recordRefusal(ctx, j.Jobs, asked, snap.Run.ID, err)
	}
	after, err := end(j.s.applier.Fetcher, &snap.Run, lease.Held{Run: snap.Run.ID, Tenant: j.tenant, Worker: a.Worker, Attempt: attempt, Actor: j.actor})
	if err == nil {
		return ended(after), nil
	}
	reason := ""
	switch {
	case errors.Is(err, background.ErrNotHolder):
		reason = "another worker holds it, or another attempt of it runs"
	case errors.Is(err, background.ErrNotFound), errors.Is(err, background.ErrConflict):
		reason = "the attempt has ended; an answer that adds something is on record as late"
	default:
		return Status{}, err
	}
	now, readErr := j.find(ctx, a.ID)
	if readErr != nil {
		return Status{}, readErr
	}
	return Status{}, &ConflictError{Status: statusOf(now.Run), Reason: reason}
}

// answeredAttempt returns the number of the attempt that a worker answers. One that it does not name is
// known only where no other can be meant: the run had one, or the worker one of them. An attempt is its
// principal's: no other one's answer counts, also after its end.
func (j adjudications) answeredAttempt(ctx context.Context, snap journal.Snapshot, a Answer) (int, error) {
	r := &snap.Run
	// Not by the lease: it may end before the answer is recorded, and then nothing else says whose it was.
	started, err := j.s.journal.Receipts.OfCase(ctx, j.tenant, r.Case, receipts.AttemptStarted)
	if err != nil {
		return 0, err
	}
	var meant []int
	others := false // attempts that are meant are another principal's
	for _, one := range started {
		p, err := one.Payload()
		if err != nil {
			return 0, err
		}
		if one.Run == r.ID && one.Actor != j.actor {
			others = others || a.Attempt == 0 || a.Attempt == p.Attempt
			continue
		}
		if one.Run == r.ID && (a.Attempt == 0 || a.Attempt == p.Attempt) && (a.Worker == "" || p.Worker == a.Worker || p.Worker == lease.Unnamed) {
			meant = append(meant, p.Attempt)
		}
	}
	switch len(meant) {
	case 1:
		return meant[0], nil
	case 0:
		if others {
			return 0, casework.RefusedBy(refusal.GateNotTheHolder, snap)
		}
		return 0, &ConflictError{Status: statusOf(*r), Reason: "no attempt of it was this worker's"}
	}
	return 0, &ConflictError{Status: statusOf(*r), Reason: "it had several attempts: name the one that is answered by attempt, which is recourse.attempt in its meta"}
}

// cancel cancels an adjudication, or asks for it while a worker holds it.
func (j adjudications) cancel(ctx context.Context, snap journal.Snapshot, reason string) (Status, error) {
	after, err := j.s.applier.Cancel(ctx, j.tenant, snap.Run.ID, j.actor, reason)
	status := statusOf(after)
	switch {
	case errors.Is(err, refusal.ErrEnded):
		return Status{}, &ConflictError{Status: status, Reason: onlyLiveCancelled}
	case err != nil:
		return Status{}, err
	case status.CancelRequested:
		return Status{}, &ConflictError{Status: status, Reason: "a worker holds it: it is cancelled at the end of the attempt if that paid nothing"}
	}
	return status, nil
}
