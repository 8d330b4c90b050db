package postadjudication

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// submitAsOlderVersion submits an adjudication as a version did that did not check for secrets. Its
// payload is in canonical form.
func (r *rig) submitAsOlderVersion(a Adjudication) Submitted {
	r.t.Helper()
	payload := json.RawMessage("{}")
	if a.Payload != nil {
		payload = a.Payload
	}
	request, err := binding.Request(a.Instruction, payload)
	if err != nil {
		r.t.Fatal(err)
	}
	ad := admission{
		Adjudication: a, run: background.RunID(casework.NewID()), caseID: background.CaseID(casework.NewID()), transition: casework.NewID(),
		queue: r.manager.Queue(casework.Family, a.RetryKey()), policy: r.policies.base, request: request, digest: a.contentDigest(payload), at: r.now(),
	}
	out, err := r.submit(r.t.Context(), ad.submission(), nil)
	if err != nil || out.Reply != Created {
		r.t.Fatalf("%+v, %v", out, err)
	}
	return out
}

// checkFieldRefused checks that an input is refused with a field, without its value.
func (r *rig) checkFieldRefused(err error, field string) {
	r.t.Helper()
	var bad *refusal.FieldError
	if !errors.As(err, &bad) || bad.Field != field || strings.Contains(err.Error(), "4111") {
		r.t.Errorf("%s: %v", field, err)
	}
}

// submitAgain submits an adjudication by Submit and SubmitTx, which reply the same.
func (r *rig) submitAgain(a Adjudication) (Submitted, error) {
	r.t.Helper()
	tx, err := r.db.Begin()
	if err != nil {
		r.t.Fatal(err)
	}
	inTx, txErr := r.SubmitTx(r.t.Context(), tx, a)
	if err := tx.Commit(); err != nil {
		r.t.Fatal(err)
	}
	out, err := r.Submit(r.t.Context(), a)
	if out.Reply != inTx.Reply || out.Run != inTx.Run || (err == nil) != (txErr == nil) {
		r.t.Errorf("%+v, %v; in a transaction %+v, %v", out, err, inTx, txErr)
	}
	return out, err
}

// An adjudication that was accepted before its secret, or its format character, was refused gets
// the reply of an accepted one. Another one of its transaction is refused.
func TestAnAdjudicationAcceptedWithASecretIsNotRefusedLater(t *testing.T) {
	t.Parallel()
	r := newRig(t, withAliases("bank "+plantedCard))
	unsafe := map[string]func(*Adjudication){
		"tenant":                 func(a *Adjudication) { a.Tenant = plantedCard },
		"transaction_receipt_id": func(a *Adjudication) { a.TransactionReceiptID = plantedCard },
		"submission_receipt_id":  func(a *Adjudication) { a.SubmissionReceiptID = plantedCard },
		"adjudication_id":        func(a *Adjudication) { a.AdjudicationID = plantedCard },
		"escrow_reference":       func(a *Adjudication) { a.EscrowReference = plantedCard },
		"target":                 func(a *Adjudication) { a.Target = "bank " + plantedCard },
		"actor":                  func(a *Adjudication) { a.Actor = "user:ada\u202e" },
		"payload.note":           func(a *Adjudication) { a.Payload = json.RawMessage(`{"note":"` + plantedCard + `"}`) },
	}
	var accepted []Submitted
	var sent []Adjudication
	n := 0
	for _, set := range unsafe {
		a := release(n)
		n++
		set(&a)
		accepted, sent = append(accepted, r.submitAsOlderVersion(a)), append(sent, a)
	}
	answered := func(want Reply) {
		t.Helper()
		for i, a := range sent {
			if got, err := r.submitAgain(a); err != nil || got.Reply != want || got.Run != accepted[i].Run {
				t.Errorf("%+v: %+v, %v, want %s", a, got, err, want)
			}
		}
	}
	answered(Deduplicated)
	r.startWorkers().untilNoneLive()
	answered(AlreadyExecuted)
	before := r.count(`SELECT (SELECT count(*) FROM recourse.receipts) + (SELECT count(*) FROM recourse.runs)`)
	for field, set := range unsafe {
		other, higher, unknown := release(0), release(0), release(1000)
		for _, a := range []*Adjudication{&other, &higher, &unknown} {
			set(a)
		}
		other.Amount = euros(1)
		higher.Generation = 2
		for _, a := range []Adjudication{other, higher, unknown} {
			_, err := r.submitAgain(a)
			r.checkFieldRefused(err, field)
		}
	}
	if after := r.count(`SELECT (SELECT count(*) FROM recourse.receipts) + (SELECT count(*) FROM recourse.runs)`); after != before {
		t.Errorf("%d receipts and runs become %d", before, after)
	}
	malformed := sent[0]
	malformed.Payload = json.RawMessage(`{"` + strings.ReplaceAll(plantedCard, " ", "") + `":1e400}`)
	_, err := r.submitAgain(malformed)
	r.checkFieldRefused(err, "payload")
	r.mustAudit()
}

// The reply names the letter of such an adjudication, its cancellation, and the run of a lower generation.
func TestALetterOfAnAdjudicationWithASecretIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return refused() }
	secret := func(n int) Adjudication {
		a := release(n)
		a.Payload = json.RawMessage(`{"note":"` + plantedCard + `"}`)
		return a
	}
	cancelled := r.submitAsOlderVersion(secret(2))
	if _, err := r.As("acme", "user:ada").Cases.Cancel(t.Context(), cancelled.Run, "a fraud"); err != nil {
		t.Fatal(err)
	}
	r.startWorkers()
	letter := r.submitAsOlderVersion(secret(1))
	r.until("dead", `SELECT letter = 'open' FROM recourse.runs WHERE id = $1`, letter.Run.String())
	if got, err := r.submitAgain(secret(1)); err != nil || got.Reply != DeadLettered || got.Run != letter.Run {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.submitAgain(secret(2)); err != nil || got.Reply != Cancelled || got.Actor != "user:ada" {
		t.Errorf("%+v, %v", got, err)
	}
	higher := release(1)
	higher.Generation = 2
	r.mustSubmit(higher)
	if got, err := r.submitAgain(secret(1)); err != nil || got.Reply != Superseded || got.Run != letter.Run {
		t.Errorf("%+v, %v", got, err)
	}
	r.untilNoneLive()
	r.mustAudit()
}

// A task's reply is by its retry key, whatever the key contains.
func TestATaskAcceptedWithASecretIsNotRefusedLater(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Families = []PlainFamily{{Name: "mails", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "mail.refused"}}
		}}}
	})
	tasks := map[string]Task{
		"tenant":        {Tenant: plantedCard, RetryKey: "k"},
		"retry_key":     {Tenant: "acme", RetryKey: plantedCard},
		"actor":         {Tenant: "acme", RetryKey: "a", Actor: "user:\u200b"},
		"payload.token": {Tenant: "acme", RetryKey: "p", Payload: json.RawMessage(`{"token":"4111x7Qa"}`)},
	}
	runs := map[string]Submitted{}
	for field, task := range tasks {
		task.Family = "mails"
		tasks[field] = task
		_, err := r.SubmitTask(t.Context(), task)
		r.checkFieldRefused(err, field)
		if runs[field], err = r.submit(t.Context(), r.taskSubmission(t.Context(), r.cases.PlainFamilies["mails"], task), nil); err != nil || runs[field].Reply != Created {
			t.Fatalf("%+v, %v", runs[field], err)
		}
	}
	answered := func(want Reply) {
		t.Helper()
		for field, task := range tasks {
			if got, err := r.SubmitTask(t.Context(), task); err != nil || got.Reply != want || got.Run != runs[field].Run {
				t.Errorf("%s: %+v, %v, want %s", field, got, err, want)
			}
		}
	}
	answered(Deduplicated)
	r.startWorkers().untilNoneLive()
	answered(DeadLettered)
	for field, task := range tasks {
		task.RetryKey += " 4111"
		task.Payload = json.RawMessage(`{"token":"4111x7Qa"}`)
		if _, err := r.SubmitTask(t.Context(), task); err == nil {
			t.Errorf("%s: another task was taken", field)
		}
	}
	r.mustAudit()
}

// A request that was stored under a key that holds a secret keeps its answer.
func TestARequestEnteredUnderASecretKeyIsAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	same := sha256.Sum256([]byte("a request"))
	for _, key := range []string{plantedCard, "k\u202e" + "4111"} {
		_, _, err := r.BeginRequest(t.Context(), "acme", key, same)
		r.checkFieldRefused(err, "Idempotency-Key")
		entry := journal.Request{Tenant: "acme", Key: key, Digest: same, Token: uuid.New(), Began: r.now()}
		if _, begun, err := r.journal.Requests.Begin(t.Context(), entry, entry.Began.Add(-requestTimeout), entry.Began.Add(-RequestRetention)); err != nil || !begun {
			t.Fatal(begun, err)
		}
		if _, _, err := r.BeginRequest(t.Context(), "acme", key, same); !errors.Is(err, ErrRequestBusy) {
			t.Errorf("not answered yet: %v", err)
		}
		if err := r.journal.Requests.Answer(t.Context(), entry, journal.Response{Status: 201, Headers: "{}", Body: []byte("paid")}); err != nil {
			t.Fatal(err)
		}
		if before, _, err := r.BeginRequest(t.Context(), "acme", key, same); err != nil || before == nil || string(before.Body) != "paid" {
			t.Errorf("%+v, %v", before, err)
		}
		if _, _, err := r.BeginRequest(t.Context(), "acme", key, [32]byte{1}); !errors.Is(err, ErrRequestMismatch) {
			t.Errorf("another request: %v", err)
		}
		_, _, err = r.BeginRequest(t.Context(), "zenith", key, same)
		r.checkFieldRefused(err, "Idempotency-Key")
		if _, err := r.db.Exec(`UPDATE recourse.requests SET began = began - interval '25 hours'`); err != nil {
			t.Fatal(err)
		}
		_, _, err = r.BeginRequest(t.Context(), "acme", key, same)
		r.checkFieldRefused(err, "Idempotency-Key")
	}
}
