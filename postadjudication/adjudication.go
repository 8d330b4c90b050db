package postadjudication

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"github.com/recourse-dev/recourse/internal/cpulimit"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Family is the name of the settlement family.
const Family = "settlement"

// DefaultTarget is the escrow service that is called when none is named.
const DefaultTarget = "escrow"

// MaxPayload bounds the caller's own part of a request, in bytes.
const MaxPayload = 16 << 10

// Adjudication is a decision about an escrow, handed over for execution.
type Adjudication struct {
	settlement.Instruction
	// Target names the escrow service, one of Config.Targets; empty means DefaultTarget. It
	// is part of the operation key.
	Target string
	// Payload is the caller's own JSON object, passed on to the escrow service. It
	// must hold no secrets: a card or account number, a token or a password in it
	// is refused, naming the field.
	Payload json.RawMessage
	// Actor is who hands the adjudication over; empty means "system:escrow".
	Actor string
}

// FieldError names a field of an input and what is wrong with it.
type FieldError = settlement.FieldError

// errTenantRequired refuses the name that stands for all tenants where one is meant.
var errTenantRequired = &FieldError{Field: "tenant", Problem: "must be the name of one tenant; " + AllTenants + " stands for all"}

// Validate tells everything that is wrong with an adjudication, each a
// *FieldError, joined.
func (a Adjudication) Validate() error {
	malformed, unsafe := a.Check()
	return errors.Join(malformed, unsafe)
}

// Check tells what of Validate no version accepted, and apart from it the rest: for secrets and
// characters of format Submit refuses a new adjudication, and answers one that was accepted before.
func (a Adjudication) Check() (malformed, unsafe error) {
	p := a.problems()
	return p.malformed(), p.unsafe()
}

// problems returns all that Validate tells, what is unsafe apart.
func (a Adjudication) problems() problems {
	var p problems
	p.addMalformed(a.Instruction.Validate())
	if a.Tenant == AllTenants {
		p.addMalformed(errTenantRequired)
	}
	p.checkText("target", a.Target, 0, 64)
	p.checkText("actor", a.Actor, 0, 128)
	for _, id := range [...]struct{ field, value string }{
		{"tenant", a.Tenant}, {"transaction_receipt_id", a.TransactionReceiptID}, {"submission_receipt_id", a.SubmissionReceiptID},
		{"adjudication_id", a.AdjudicationID}, {"escrow_reference", a.EscrowReference}, {"target", a.Target}, {"actor", a.Actor},
	} {
		p.addUnsafe(rejectSecret(id.field, id.value))
	}
	p.checkPayload(a.Payload)
	return p
}

// longPayload is the length in bytes from which on judging a payload takes its tenant's turn.
const longPayload = 1 << 10

// problemsInTurn is problems, which costs more the longer a payload is: however many long ones a
// tenant hands over, others are judged meanwhile.
func (a Adjudication) problemsInTurn(ctx context.Context) (p problems, err error) {
	if len(a.Payload) < longPayload {
		return a.problems(), nil
	}
	err = cpulimit.OfProcess().Do(ctx, a.Tenant, func() { p = a.problems() })
	return p, err
}

// secretProblem is the problem of a field that holds a secret. The value is not repeated.
const secretProblem = "looks like a secret, card or account number; hand over a reference instead"

// rejectSecret refuses an id that holds a secret: ids are kept for ever, in receipts too.
func rejectSecret(field, id string) error {
	if redact.ContainsSecret(id) {
		return &FieldError{Field: field, Problem: secretProblem}
	}
	return nil
}

// rejectSecretIn refuses a payload that holds a secret, by its field.
func rejectSecretIn(p json.RawMessage) error {
	if field, found := redact.Find(p); found {
		return &FieldError{Field: fieldPath("payload", field), Problem: secretProblem}
	}
	return nil
}

// canonicalPayload is the caller's part as it is sent, compared and kept: RFC 8785
// canonical JSON of an object; {} when there is none. It may hold a secret.
func canonicalPayload(p json.RawMessage) (json.RawMessage, error) {
	if len(p) == 0 {
		return json.RawMessage("{}"), nil
	}
	if len(p) > MaxPayload {
		return nil, &FieldError{Field: "payload", Problem: fmt.Sprintf("must be at most %d bytes, is %d", MaxPayload, len(p))}
	}
	var object map[string]any
	dec := json.NewDecoder(bytes.NewReader(p))
	dec.UseNumber()
	if !utf8.Valid(p) || dec.Decode(&object) != nil || object == nil || dec.More() {
		return nil, &FieldError{Field: "payload", Problem: "must be a JSON object in UTF-8"}
	}
	if path, found := inexactNumber(object); found {
		return nil, &FieldError{Field: "payload" + path, Problem: "is a number that not every JSON reader keeps exact; write it as a string"}
	}
	canonical, err := jcs.Transform(p)
	if err != nil {
		return nil, &FieldError{Field: "payload", Problem: "has no canonical form: " + err.Error()}
	}
	if len(canonical) > 2*MaxPayload {
		return nil, &FieldError{Field: "payload", Problem: fmt.Sprintf("must be at most %d bytes in canonical form, is %d", 2*MaxPayload, len(canonical))}
	}
	return canonical, nil
}

// fieldPath is the path of a field in another one; an empty path is the other one itself.
func fieldPath(outer, path string) string {
	if path == "" || path[0] == '[' {
		return outer + path
	}
	return outer + "." + path
}

// inexactNumber returns the path, below the value, of a number in it that canonical JSON would
// round: an integer beyond 2^53-1, or one that no finite double can hold.
func inexactNumber(v any) (path string, found bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, member := range v {
			if below, found := inexactNumber(member); found {
				return "." + k + below, true
			}
		}
	case []any:
		for i, member := range v {
			if below, found := inexactNumber(member); found {
				return fmt.Sprintf("[%d]%s", i, below), true
			}
		}
	case json.Number:
		f, err := v.Float64()
		if err != nil || !strings.ContainsAny(v.String(), ".eE") && math.Abs(f) > settlement.MaxMinor {
			return "", true
		}
	}
	return "", false
}

// isPlainText reports whether a text is UTF-8 without control characters, and without those of
// format, which turn the order of what is read or show nothing.
func isPlainText(s string) bool {
	return !hasControls(s) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Cf, r) })
}

// hasControls reports whether a text is no UTF-8, or has control characters.
func hasControls(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl)
}

func (a Adjudication) target() string {
	if a.Target == "" {
		return DefaultTarget
	}
	return a.Target
}

func (a Adjudication) actor() string {
	if a.Actor == "" {
		return "system:escrow"
	}
	return a.Actor
}

// operationKey is the same for every attempt and every fork of one decision, and
// differs between decisions: it never depends on run, attempt or clock.
func (a Adjudication) operationKey(epoch int) OperationKey {
	h := sha256.New()
	for _, s := range []string{"recourse operation 1", a.Tenant, a.target(), a.TransactionReceiptID, string(a.Outcome)} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s))))
		h.Write([]byte(s))
	}
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(a.Generation)))
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(epoch)))
	return OperationKey(h.Sum(nil))
}

// contentDigest is the digest that tells another adjudication under the same generation.
func (a Adjudication) contentDigest(canonical json.RawMessage) [32]byte {
	d := a.Instruction.Digest()
	h := sha256.New()
	h.Write(d[:])
	h.Write([]byte(a.target()))
	h.Write([]byte{0})
	h.Write(canonical)
	return [32]byte(h.Sum(nil))
}

// request is what the escrow service is sent, with a payload that need not be in canonical form.
func (a Adjudication) request(payload json.RawMessage) ([]byte, error) {
	canonical := []byte("{}")
	if string(payload) != "{}" {
		var err error
		if canonical, err = jcs.Transform(payload); err != nil {
			return nil, &FieldError{Field: "payload", Problem: "has no canonical form: " + err.Error()}
		}
	}
	return a.requestOf(canonical), nil
}

// requestOf is what the escrow service is sent, on every attempt the same bytes: RFC 8785 canonical
// JSON, as the payload is.
func (a Adjudication) requestOf(canonical json.RawMessage) []byte {
	b := make([]byte, 0, 320+len(canonical))
	member := func(key, value string) {
		b = append(b, key...)
		b = receipts.AppendText(b, value)
	}
	money := func(key string, m settlement.Money) {
		member(key+`{"currency":`, m.Currency)
		b = append(strconv.AppendInt(append(b, `,"minor":`...), m.Minor, 10), '}')
	}
	member(`{"adjudication_id":`, a.AdjudicationID)
	money(`,"amount":`, a.Amount)
	member(`,"escrow_reference":`, a.EscrowReference)
	b = strconv.AppendInt(append(b, `,"generation":`...), int64(a.Generation), 10)
	money(`,"held":`, a.Held)
	member(`,"outcome":`, string(a.Outcome))
	b = append(append(b, `,"payload":`...), canonical...)
	member(`,"submission_receipt_id":`, a.SubmissionReceiptID)
	member(`,"tenant":`, a.Tenant)
	member(`,"transaction_receipt_id":`, a.TransactionReceiptID)
	return append(b, '}')
}

// problems is what is wrong with an input, each a *FieldError. What is unsafe is a secret, or a
// character of format: an earlier version may have accepted the input. What was accepted
// is never answered as refused, so that unsafe input is looked up first.
type problems struct {
	malformedErrs, unsafeErrs []error
	canonical                 json.RawMessage // form of the payload, unless that is malformed
}

func (p *problems) malformed() error { return errors.Join(p.malformedErrs...) }
func (p *problems) unsafe() error    { return errors.Join(p.unsafeErrs...) }

func (p *problems) addMalformed(err error) { p.malformedErrs = append(p.malformedErrs, err) }
func (p *problems) addUnsafe(err error)    { p.unsafeErrs = append(p.unsafeErrs, err) }

// checkText refuses what is no plain text of so many bytes.
func (p *problems) checkText(field, value string, least, most int) {
	bound := fmt.Sprintf("at most %d", most)
	if least > 0 {
		bound = fmt.Sprintf("%d to %d", least, most)
	}
	err := &FieldError{Field: field, Problem: "must be " + bound + " bytes of plain text"}
	switch {
	case len(value) < least || len(value) > most || hasControls(value):
		p.addMalformed(err)
	case !isPlainText(value):
		p.addUnsafe(err)
	}
}

// checkPayload refuses what is no payload of an adjudication. Of one that holds a secret nothing else
// is told: the name of a member may be the secret.
func (p *problems) checkPayload(text json.RawMessage) {
	canonical, err := canonicalPayload(text)
	p.canonical = canonical
	if len(text) > MaxPayload || !json.Valid(text) {
		p.addMalformed(err)
		return
	}
	switch secret := rejectSecretIn(text); {
	case secret == nil:
		p.addMalformed(err)
	case err != nil:
		p.addMalformed(secret)
	default:
		p.addUnsafe(secret)
	}
}

// answerUnsafeTask answers an unsafe task. One whose retry key stands for a live task or for an open
// letter is answered as every task of that key; anything else is refused.
func (s *Service) answerUnsafeTask(ctx context.Context, t Task, unsafe error) (Submitted, error) {
	if t.RetryKey == "" {
		return Submitted{}, unsafe
	}
	seen, err := s.journal.SubjectSnapshot(ctx, t.Tenant, postgres.KindPlain, t.subject())
	switch {
	case errors.Is(err, ErrNotFound):
		return Submitted{}, unsafe
	case err != nil:
		return Submitted{}, err
	}
	reply := replyToTask(&seen)
	if reply == Created {
		return Submitted{}, unsafe
	}
	return s.submitted(&seen, replyError(reply))
}

// allowStoredKey returns nil where a request is stored under an idempotency key that err refuses. It
// was entered by an earlier version, and is answered.
func (s *Service) allowStoredKey(ctx context.Context, q postgres.Request, err error) error {
	if hasControls(q.Tenant) || hasControls(q.Key) {
		return err
	}
	stored, readErr := s.journal.HasRequest(ctx, q.Tenant, q.Key, q.Began.Add(-RequestRetention))
	if readErr != nil || stored {
		return readErr
	}
	return err
}
