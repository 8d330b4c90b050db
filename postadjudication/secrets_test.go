package postadjudication

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

const (
	plantedCard  = "4111 1111 1111 1111"
	plantedIBAN  = "DE89370400440532013000"
	plantedToken = "Bearer q7Zr0-very-secret-token"
)

var planted = fmt.Sprintf("declined for %s, account %s, sent with Authorization: %s", plantedCard, plantedIBAN, plantedToken)

// lockedBuffer is a log that many goroutines write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Secrets in an executor's error, a panic and a reference reach neither the database nor the log
// nor asynq's archive.
func TestSecretsStayOutOfDatabaseAndLog(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	logger := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&log), zap.DebugLevel))
	r := newRig(t, func(c *Config) { c.Logger = logger })
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		switch {
		case c.Outcome == "refund":
			panic(planted)
		case c.Attempt == 1:
			return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "http.rate_limited", Code: plantedCard, Message: planted, Reference: plantedIBAN}
		}
		return escrow.Answer{Class: escrow.NotExecuted, Type: "http.refused", Message: planted}
	}
	r.startWorkers()
	r.mustSubmit(release(1))
	r.mustSubmit(refund(2))
	r.untilNoneLive()
	logger.Error(planted, zap.String("text", "harmless"))
	r.log.Error(planted, zap.Error(errors.New(planted)), zap.String("field", planted), zap.Any("any", map[string]string{"x": planted}))
	dump := r.dump()
	if !strings.Contains(dump, "declined for [card]") {
		t.Error("the dump does not hold the redacted text: the test looks in the wrong place")
	}
	for _, secret := range []string{plantedCard, strings.ReplaceAll(plantedCard, " ", ""), plantedIBAN, "q7Zr0-very-secret-token"} {
		if strings.Contains(dump, secret) {
			t.Errorf("%q is in the database", secret)
		}
		if n := strings.Count(log.String(), secret); n > strings.Count(planted, secret) { // once by the logger before redaction
			t.Errorf("%q is in the log %d times:\n%s", secret, n, log.String())
		}
	}
	r.mustAudit()
}

// dump returns every row of every table as text.
func (r *rig) dump() string {
	r.t.Helper()
	var out strings.Builder
	for _, table := range []string{"cases", "runs", "receipts", "operations", "escrows"} {
		rows, err := r.db.Query(`SELECT row_to_json(x)::text || coalesce(convert_from(decode(substr(coalesce(to_jsonb(x)->>'request', to_jsonb(x)->>'payload', ''), 3), 'hex'), 'UTF8'), '') FROM recourse.` + table + ` x`)
		if err != nil {
			r.t.Fatal(err)
		}
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				r.t.Fatal(err)
			}
			out.WriteString(line + "\n")
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			r.t.Fatal(err)
		}
	}
	return out.String()
}

func TestSecretsInAPayloadAreRefusedAtSubmission(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for field, value := range map[string]string{"payload.note": plantedCard, "payload.iban": plantedIBAN, "payload.password": "hunter2"} {
		a := release(1)
		payload, err := json.Marshal(map[string]string{strings.TrimPrefix(field, "payload."): value})
		if err != nil {
			t.Fatal(err)
		}
		a.Payload = payload
		_, err = r.Submit(context.Background(), a)
		var bad *refusal.FieldError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.cases`); n != 0 {
		t.Errorf("%d cases", n)
	}
}

// Ids, targets, keys and payload members of any type that hold a secret are refused with their field,
// without the value. Nothing of them is stored.
func TestSecretsAreRefusedAtSubmissionInEveryField(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Families = []PlainFamily{{Name: "mails", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: background.Executed}
		}}}
	})
	secrets := []string{plantedCard, strings.ReplaceAll(plantedCard, " ", "."), plantedIBAN, "sk_" + "live_" + strings.Repeat("x7Qa", 6), "password=hunter2x", "esc_" + strings.ReplaceAll(plantedCard, " ", "")}
	ids := map[string]func(*Adjudication, string){
		"tenant":                 func(a *Adjudication, s string) { a.Tenant = s },
		"transaction_receipt_id": func(a *Adjudication, s string) { a.TransactionReceiptID = s },
		"submission_receipt_id":  func(a *Adjudication, s string) { a.SubmissionReceiptID = s },
		"adjudication_id":        func(a *Adjudication, s string) { a.AdjudicationID = s },
		"escrow_reference":       func(a *Adjudication, s string) { a.EscrowReference = s },
		"target":                 func(a *Adjudication, s string) { a.Target = s },
		"actor":                  func(a *Adjudication, s string) { a.Actor = s },
	}
	refused := func(err error, field, secret string) {
		t.Helper()
		var bad *refusal.FieldError
		if !errors.As(err, &bad) || bad.Field != field || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, secret := range secrets {
		for field, set := range ids {
			a := release(1)
			set(&a, secret)
			_, err := r.Submit(t.Context(), a)
			refused(err, field, secret)
		}
		for field, task := range map[string]Task{
			"tenant": {Tenant: secret}, "retry_key": {Tenant: "acme", RetryKey: secret}, "actor": {Tenant: "acme", Actor: secret},
		} {
			task.Family = "mails"
			_, err := r.SubmitTask(t.Context(), task)
			refused(err, field, secret)
		}
		_, _, err := r.BeginRequest(t.Context(), "acme", secret, [32]byte{1})
		refused(err, "Idempotency-Key", secret)
		_, err = r.As("acme", secret).Cases.Cancel(t.Context(), background.RunID(casework.NewID()), "x")
		refused(err, "actor", secret)
		_, err = r.As("acme", secret).DeadLetters.Fork(t.Context(), background.RunID(casework.NewID()), deadletter.Fork{Reason: "x"})
		refused(err, "actor", secret)
		refused(validateBreakerChange("acme", secret, "ada", "x"), "target", secret)
	}
	for payload, field := range map[string]string{
		`{"password":123456}`: "payload.password", `{"password":{"v":"hunter2"}}`: "payload.password.v", `{"token":99}`: "payload.token",
		`{"pin":1234}`: "payload.pin", `{"a":[{"b":4111111111111111}]}`: "payload.a[0].b", `{"4111111111111111":1e400}`: "payload",
	} {
		a := release(1)
		a.Payload = json.RawMessage(payload)
		_, err := r.Submit(t.Context(), a)
		refused(err, field, "4111111111111111")
		_, err = r.SubmitTask(t.Context(), Task{Family: "mails", Tenant: "acme", Payload: json.RawMessage(payload)})
		refused(err, field, "4111111111111111")
	}
	if n := r.count(`SELECT (SELECT count(*) FROM recourse.cases) + (SELECT count(*) FROM recourse.runs) + (SELECT count(*) FROM recourse.requests)`); n != 0 {
		t.Errorf("%d rows were kept", n)
	}
}
