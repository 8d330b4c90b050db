package postadjudication_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// submitAsOlderVersion submits an adjudication as a version did that did not check for secrets. Its
// payload is in canonical form.
func submitAsOlderVersion(r *rig.Rig, a postadjudication.Adjudication) postadjudication.Submitted {
	r.T.Helper()
	out, err := r.SubmitAsOlderVersion(r.T.Context(), a)
	if err != nil || out.Reply != postadjudication.Created {
		r.T.Fatalf("%+v, %v", out, err)
	}
	return out
}

// checkFieldRefused checks that an input is refused with a field, without its value.
func checkFieldRefused(r *rig.Rig, err error, field string) {
	r.T.Helper()
	var bad *refusal.FieldError
	if !errors.As(err, &bad) || bad.Field != field || strings.Contains(err.Error(), "4111") {
		r.T.Errorf("%s: %v", field, err)
	}
}

// submitAgain submits an adjudication by Submit and SubmitTx, which reply the same.
func submitAgain(r *rig.Rig, a postadjudication.Adjudication) (postadjudication.Submitted, error) {
	r.T.Helper()
	tx, err := r.DB.Begin()
	if err != nil {
		r.T.Fatal(err)
	}
	inTx, txErr := r.SubmitTx(r.T.Context(), tx, a)
	if err := tx.Commit(); err != nil {
		r.T.Fatal(err)
	}
	out, err := r.Submit(r.T.Context(), a)
	if out.Reply != inTx.Reply || out.Run != inTx.Run || (err == nil) != (txErr == nil) {
		r.T.Errorf("%+v, %v; in a transaction %+v, %v", out, err, inTx, txErr)
	}
	return out, err
}

// An adjudication that was accepted before its secret, or its format character, was refused gets
// the reply of an accepted one. Another one of its transaction is refused.
func TestAnAdjudicationAcceptedWithASecretIsNotRefusedLater(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withAliases("bank "+plantedCard))
	unsafe := map[string]func(*postadjudication.Adjudication){
		"tenant":                 func(a *postadjudication.Adjudication) { a.Tenant = plantedCard },
		"transaction_receipt_id": func(a *postadjudication.Adjudication) { a.TransactionReceiptID = plantedCard },
		"submission_receipt_id":  func(a *postadjudication.Adjudication) { a.SubmissionReceiptID = plantedCard },
		"adjudication_id":        func(a *postadjudication.Adjudication) { a.AdjudicationID = plantedCard },
		"escrow_reference":       func(a *postadjudication.Adjudication) { a.EscrowReference = plantedCard },
		"target":                 func(a *postadjudication.Adjudication) { a.Target = "bank " + plantedCard },
		"actor":                  func(a *postadjudication.Adjudication) { a.Actor = "user:ada\u202e" },
		"request":                func(a *postadjudication.Adjudication) { a.Request = plantedCard },
		"payload.note":           func(a *postadjudication.Adjudication) { a.Payload = json.RawMessage(`{"note":"` + plantedCard + `"}`) },
	}
	var accepted []postadjudication.Submitted
	var sent []postadjudication.Adjudication
	n := 0
	for _, set := range unsafe {
		a := rig.Release(n)
		n++
		set(&a)
		accepted, sent = append(accepted, submitAsOlderVersion(r, a)), append(sent, a)
	}
	answered := func(want postadjudication.Reply) {
		t.Helper()
		for i, a := range sent {
			if got, err := submitAgain(r, a); err != nil || got.Reply != want || got.Run != accepted[i].Run {
				t.Errorf("%+v: %+v, %v, want %s", a, got, err, want)
			}
		}
	}
	answered(postadjudication.Deduplicated)
	r.StartWorkers().WaitNoneLive()
	answered(postadjudication.AlreadyExecuted)
	before := r.CountRows("receipts", "runs")
	for field, set := range unsafe {
		other, higher, unknown := rig.Release(0), rig.Release(0), rig.Release(1000)
		for _, a := range []*postadjudication.Adjudication{&other, &higher, &unknown} {
			set(a)
		}
		other.Amount = rig.Euros(1)
		higher.Generation = 2
		for _, a := range []postadjudication.Adjudication{other, higher, unknown} {
			_, err := submitAgain(r, a)
			checkFieldRefused(r, err, field)
		}
	}
	if after := r.CountRows("receipts", "runs"); after != before {
		t.Errorf("%d receipts and runs become %d", before, after)
	}
	malformed := sent[0]
	malformed.Payload = json.RawMessage(`{"` + strings.ReplaceAll(plantedCard, " ", "") + `":1e400}`)
	_, err := submitAgain(r, malformed)
	checkFieldRefused(r, err, "payload")
	r.MustAudit()
}

// The reply names the letter of such an adjudication, its cancellation, and the run of a lower generation.
func TestALetterOfAnAdjudicationWithASecretIsNamed(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Answer(rig.Refuses)
	secret := func(n int) postadjudication.Adjudication {
		a := rig.Release(n)
		a.Payload = json.RawMessage(`{"note":"` + plantedCard + `"}`)
		return a
	}
	cancelled := submitAsOlderVersion(r, secret(2))
	if _, err := r.As("acme", "user:ada").Cases.Cancel(t.Context(), cancelled.Run, "a fraud"); err != nil {
		t.Fatal(err)
	}
	r.StartWorkers()
	letter := submitAsOlderVersion(r, secret(1))
	r.WaitLetter(letter.Run)
	if got, err := submitAgain(r, secret(1)); err != nil || got.Reply != postadjudication.DeadLettered || got.Run != letter.Run {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := submitAgain(r, secret(2)); err != nil || got.Reply != postadjudication.Cancelled || got.Actor != "user:ada" {
		t.Errorf("%+v, %v", got, err)
	}
	higher := rig.Release(1)
	higher.Generation = 2
	r.MustSubmit(higher)
	if got, err := submitAgain(r, secret(1)); err != nil || got.Reply != postadjudication.Superseded || got.Run != letter.Run {
		t.Errorf("%+v, %v", got, err)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// A task's reply is by its retry key, whatever the key contains.
func TestATaskAcceptedWithASecretIsNotRefusedLater(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "mails", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "mail.refused"}}
		}}}
	})
	tasks := map[string]postadjudication.Task{
		"tenant":        {Tenant: plantedCard, RetryKey: "k"},
		"retry_key":     {Tenant: "acme", RetryKey: plantedCard},
		"actor":         {Tenant: "acme", RetryKey: "a", Actor: "user:\u200b"},
		"request":       {Tenant: "acme", RetryKey: "r", Request: plantedCard},
		"payload.token": {Tenant: "acme", RetryKey: "p", Payload: json.RawMessage(`{"token":"4111x7Qa"}`)},
	}
	runs := map[string]postadjudication.Submitted{}
	for field, task := range tasks {
		task.Family = "mails"
		tasks[field] = task
		_, err := r.SubmitTask(t.Context(), task)
		checkFieldRefused(r, err, field)
		if runs[field], err = r.SubmitTaskUnchecked(t.Context(), task); err != nil || runs[field].Reply != postadjudication.Created {
			t.Fatalf("%+v, %v", runs[field], err)
		}
	}
	answered := func(want postadjudication.Reply) {
		t.Helper()
		for field, task := range tasks {
			if got, err := r.SubmitTask(t.Context(), task); err != nil || got.Reply != want || got.Run != runs[field].Run {
				t.Errorf("%s: %+v, %v, want %s", field, got, err, want)
			}
		}
	}
	answered(postadjudication.Deduplicated)
	r.StartWorkers().WaitNoneLive()
	answered(postadjudication.DeadLettered)
	for field, task := range tasks {
		task.RetryKey += " 4111"
		task.Payload = json.RawMessage(`{"token":"4111x7Qa"}`)
		if _, err := r.SubmitTask(t.Context(), task); err == nil {
			t.Errorf("%s: another task was taken", field)
		}
	}
	r.MustAudit()
}

// A request that was stored under a key that holds a secret keeps its answer.
func TestARequestEnteredUnderASecretKeyIsAnswered(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	same := sha256.Sum256([]byte("a request"))
	for _, key := range []string{plantedCard, "k\u202e" + "4111"} {
		_, _, err := r.BeginRequest(t.Context(), "acme", key, same)
		checkFieldRefused(r, err, "Idempotency-Key")
		entry := journal.IdempotentRequest{Tenant: "acme", Key: key, Digest: same, Token: uuid.New(), Began: r.Now()}
		if _, begun, err := r.Journal().Requests.Begin(t.Context(), entry, entry.Began.Add(-postadjudication.RequestTimeout), entry.Began.Add(-postadjudication.RequestRetention)); err != nil || !begun {
			t.Fatal(begun, err)
		}
		if _, _, err := r.BeginRequest(t.Context(), "acme", key, same); !errors.Is(err, postadjudication.ErrRequestBusy) {
			t.Errorf("not answered yet: %v", err)
		}
		if err := r.Journal().Requests.Answer(t.Context(), entry, journal.StoredRequest{Status: 201, Headers: "{}", Body: []byte("paid")}); err != nil {
			t.Fatal(err)
		}
		if before, _, err := r.BeginRequest(t.Context(), "acme", key, same); err != nil || before == nil || string(before.Body) != "paid" {
			t.Errorf("%+v, %v", before, err)
		}
		if _, _, err := r.BeginRequest(t.Context(), "acme", key, [32]byte{1}); !errors.Is(err, postadjudication.ErrRequestMismatch) {
			t.Errorf("another request: %v", err)
		}
		_, _, err = r.BeginRequest(t.Context(), "zenith", key, same)
		checkFieldRefused(r, err, "Idempotency-Key")
		if _, err := r.DB.Exec(`UPDATE recourse.requests SET began = began - interval '25 hours'`); err != nil {
			t.Fatal(err)
		}
		_, _, err = r.BeginRequest(t.Context(), "acme", key, same)
		checkFieldRefused(r, err, "Idempotency-Key")
	}
}

// What identifies a request is stored for good, in a receipt: it is checked as an id is.
func TestARequestThatNoReceiptCanHaveIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withEcho).StartWorkers()
	ctx := t.Context()
	task := postadjudication.Task{Tenant: "acme", Family: "echo", RetryKey: "k", Request: strings.Repeat("a", 128)}
	ended, err := r.SubmitTask(ctx, task)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	for what, request := range map[string]string{"too long": strings.Repeat("a", 129), "a secret": plantedCard, "no text": "a\x00b", "no UTF-8": "a\xffb"} {
		a := rig.Release(1)
		a.Request, task.Request = request, request
		_, submitErr := r.Submit(ctx, a)
		_, taskErr := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "echo", Request: request})
		_, againErr := r.As("acme", "user:ada").Cases.RunAgain(ctx, ended.Run, postadjudication.Repetition{Reason: "again", RequestID: request})
		for by, err := range map[string]error{"Submit": submitErr, "SubmitTask": taskErr, "RunAgain": againErr} {
			var bad *refusal.FieldError
			if !errors.As(err, &bad) || bad.Field != "request" || strings.Contains(err.Error(), "4111") {
				t.Errorf("%s of %s: %v", by, what, err)
			}
		}
	}
	if n := r.CountRows("runs"); n != 1 {
		t.Errorf("%d runs", n)
	}
	r.MustAudit()
}
