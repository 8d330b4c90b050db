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

// Secrets planted in an executor's error, a panic and a reference reach neither the
// database nor the log nor asynq's archive.
func TestSecretsStayOutOfDatabaseAndLog(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	logger := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&log), zap.DebugLevel))
	r := newRig(t, func(c *Config) { c.Logger = logger })
	r.escrow.script = func(_ context.Context, c Call) Answer {
		switch {
		case c.Outcome == "refund":
			panic(planted)
		case c.Attempt == 1:
			return Answer{Class: NotExecuted, Retry: true, Type: "http.rate_limited", Code: plantedCard, Message: planted, Reference: plantedIBAN}
		}
		return Answer{Class: NotExecuted, Type: "http.refused", Message: planted}
	}
	r.work()
	r.mustSubmit(release(1))
	r.mustSubmit(refund(2))
	r.atRest()
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
	r.sound()
}

// dump is every row of every table as text.
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

func TestSecretsInAPayloadAreRefusedAtTheDoor(t *testing.T) {
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
		var bad *FieldError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.cases`); n != 0 {
		t.Errorf("%d cases", n)
	}
}
