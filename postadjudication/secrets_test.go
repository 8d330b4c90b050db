package postadjudication_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
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
	r := rig.New(t, func(c *postadjudication.Config) { c.Logger = logger })
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		switch {
		case c.Outcome == "refund":
			panic(planted)
		case c.Attempt == 1:
			return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "http.rate_limited", Code: plantedCard, Message: planted, Reference: plantedIBAN}
		}
		return escrow.Answer{Class: escrow.NotExecuted, Type: "http.refused", Message: planted}
	})
	r.StartWorkers()
	r.MustSubmit(rig.Release(1))
	r.MustSubmit(rig.Refund(2))
	r.WaitNoneLive()
	logger.Error(planted, zap.String("text", "harmless"))
	r.Logger().Error(planted, zap.Error(errors.New(planted)), zap.String("field", planted), zap.Any("any", map[string]string{"x": planted}))
	dump := dump(r)
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
	r.MustAudit()
}

// dump returns every row of every table as text.
func dump(r *rig.Rig) string {
	r.T.Helper()
	var out strings.Builder
	for _, table := range []string{"cases", "runs", "receipts", "operations", "escrows"} {
		rows, err := r.DB.Query(`SELECT row_to_json(x)::text || coalesce(convert_from(decode(substr(coalesce(to_jsonb(x)->>'request', to_jsonb(x)->>'payload', ''), 3), 'hex'), 'UTF8'), '') FROM recourse.` + table + ` x`)
		if err != nil {
			r.T.Fatal(err)
		}
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				r.T.Fatal(err)
			}
			out.WriteString(line + "\n")
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			r.T.Fatal(err)
		}
	}
	return out.String()
}

func TestSecretsInAPayloadAreRefusedAtSubmission(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for field, value := range map[string]string{"payload.note": plantedCard, "payload.iban": plantedIBAN, "payload.password": "hunter2"} {
		a := rig.Release(1)
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
	if n := r.CountRows("cases"); n != 0 {
		t.Errorf("%d cases", n)
	}
}

// Ids, targets, keys and payload members of any type that hold a secret are refused with their field,
// without the value. Nothing of them is stored.
func TestSecretsAreRefusedAtSubmissionInEveryField(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "mails", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: background.Executed}
		}}}
	})
	secrets := []string{plantedCard, strings.ReplaceAll(plantedCard, " ", "."), plantedIBAN, "sk_" + "live_" + strings.Repeat("x7Qa", 6), "password=hunter2x", "esc_" + strings.ReplaceAll(plantedCard, " ", "")}
	ids := map[string]func(*postadjudication.Adjudication, string){
		"tenant":                 func(a *postadjudication.Adjudication, s string) { a.Tenant = s },
		"transaction_receipt_id": func(a *postadjudication.Adjudication, s string) { a.TransactionReceiptID = s },
		"submission_receipt_id":  func(a *postadjudication.Adjudication, s string) { a.SubmissionReceiptID = s },
		"adjudication_id":        func(a *postadjudication.Adjudication, s string) { a.AdjudicationID = s },
		"escrow_reference":       func(a *postadjudication.Adjudication, s string) { a.EscrowReference = s },
		"target":                 func(a *postadjudication.Adjudication, s string) { a.Target = s },
		"actor":                  func(a *postadjudication.Adjudication, s string) { a.Actor = s },
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
			a := rig.Release(1)
			set(&a, secret)
			_, err := r.Submit(t.Context(), a)
			refused(err, field, secret)
		}
		for field, task := range map[string]postadjudication.Task{
			"tenant": {Tenant: secret}, "retry_key": {Tenant: "acme", RetryKey: secret}, "actor": {Tenant: "acme", Actor: secret},
		} {
			task.Family = "mails"
			_, err := r.SubmitTask(t.Context(), task)
			refused(err, field, secret)
		}
		_, _, err := r.BeginRequest(t.Context(), "acme", secret, [32]byte{1})
		refused(err, "Idempotency-Key", secret)
		_, err = r.As("acme", secret).Cases.Cancel(t.Context(), background.RunID(uuid.New()), "x")
		refused(err, "actor", secret)
		_, err = r.As("acme", secret).DeadLetters.Fork(t.Context(), background.RunID(uuid.New()), deadletter.Fork{Reason: "x"})
		refused(err, "actor", secret)
		_, err = r.As("acme", "user:ada").Breakers.Open(t.Context(), secret, "x")
		refused(err, "target", secret)
	}
	for payload, field := range map[string]string{
		`{"password":123456}`: "payload.password", `{"password":{"v":"hunter2"}}`: "payload.password.v", `{"token":99}`: "payload.token",
		`{"pin":1234}`: "payload.pin", `{"a":[{"b":4111111111111111}]}`: "payload.a[0].b", `{"4111111111111111":1e400}`: "payload",
	} {
		a := rig.Release(1)
		a.Payload = json.RawMessage(payload)
		_, err := r.Submit(t.Context(), a)
		refused(err, field, "4111111111111111")
		_, err = r.SubmitTask(t.Context(), postadjudication.Task{Family: "mails", Tenant: "acme", Payload: json.RawMessage(payload)})
		refused(err, field, "4111111111111111")
	}
	if n := r.CountRows("cases", "runs", "requests"); n != 0 {
		t.Errorf("%d rows were kept", n)
	}
}

// Formatting the result of a submission for a log reveals nothing of the submission.
func TestASubmissionIsPrintedWithoutWhatWasHandedOver(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	a := rig.Release(1)
	a.Payload = json.RawMessage(`{"note":"geheim"}`)
	s := r.MustSubmit(a)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, value := range []any{s, &s, []any{s}} {
			text := fmt.Sprintf(format, value)
			if strings.Contains(text, "geheim") || strings.Contains(text, "103 101 104") || strings.Contains(text, "Payload") || strings.Contains(text, "0x67, 0x65") {
				t.Errorf("%s of %T: %s", format, value, text)
			}
		}
	}
	if text := s.String(); !strings.Contains(text, s.Run.String()) || !strings.Contains(text, "created") {
		t.Error(text)
	}
}
