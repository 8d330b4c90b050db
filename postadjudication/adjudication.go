package postadjudication

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/recourse-dev/recourse/internal/strictjson"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/referencepolicy"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/references"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// MaxPayload is the maximum size of Adjudication.Payload, in bytes.
const MaxPayload = 16 << 10

// Adjudication is a decision about an escrow, submitted for execution.
type Adjudication struct {
	settlement.Instruction
	// Target names the escrow service, one of Config.Targets; empty means escrow.DefaultTarget.
	// escrow.RemotePrefix and the name of a queue means that remote workers fetch the adjudication
	// from it and call their payment service. The operation key depends on Target.
	Target string
	// Payload is the caller's JSON object, passed on to the escrow service. It must hold no
	// secrets: a payload with a card or account number, a token or a password is refused with
	// the field's name.
	Payload json.RawMessage
	// Actor is who submits the adjudication; empty means "system:escrow".
	Actor string
	// Request identifies the request that hands it over, for the receipt; empty: none. It has at most
	// 128 bytes of plain text, and no secret.
	Request string
}

// errTenantRequired refuses AllTenants where one tenant is required.
var errTenantRequired = &refusal.FieldError{Field: "tenant", Problem: "must be the name of one tenant; " + AllTenants + " stands for all"}

// Validate returns everything that is wrong with an adjudication: one *FieldError per problem,
// joined.
func (a Adjudication) Validate() error {
	malformed, unsafe := a.Check()
	return errors.Join(malformed, unsafe)
}

// Check returns the problems of Validate in two parts. malformed holds those that every version
// refused. unsafe holds secrets, ids that can be taken for another one, and a Request that is no id or too long: Submit
// refuses a new adjudication with them, but answers one that an earlier version accepted. Submit also refuses a target that this process does not know;
// it takes a Generation of 0, which is malformed here, as 1.
func (a Adjudication) Check() (malformed, unsafe error) {
	p := a.problems()
	return p.malformed(), p.unsafe()
}

// problems returns all problems that Validate reports, the unsafe ones apart.
func (a Adjudication) problems() inputProblems {
	var p inputProblems
	p.addMalformed(a.Instruction.Validate())
	if a.Tenant == AllTenants {
		p.addMalformed(errTenantRequired)
	}
	for _, id := range [...]struct{ field, value string }{
		{"tenant", a.Tenant}, {"transaction_receipt_id", a.TransactionReceiptID}, {"submission_receipt_id", a.SubmissionReceiptID},
		{"adjudication_id", a.AdjudicationID}, {"escrow_reference", a.EscrowReference},
	} {
		p.checkForm(id.field, id.value)
	}
	p.checkID("target", a.Target, escrow.MaxTarget)
	p.checkID("actor", a.Actor, 128)
	p.addUnsafe(checkRequest(a.Request))
	p.checkPayload(a.Payload)
	return p
}

// maxRequest is the maximum size of a Request, in bytes.
const maxRequest = 128

// checkRequest refuses what can't identify a request in a receipt. Earlier versions did not check it.
func checkRequest(request string) error {
	if request == "" {
		return nil
	}
	return validate.NewID("request", request, maxRequest)
}

// problemsInTurn is problems, for a long payload in the tenant's turn.
func (a Adjudication) problemsInTurn(ctx context.Context) (p inputProblems, err error) {
	err = tenantlimit.InTurn(ctx, a.Tenant, len(a.Payload), func() { p = a.problems() })
	return p, err
}

// canonicalPayload returns the caller's payload as it is sent, compared and stored: the RFC
// 8785 canonical JSON of an object, or {} if there is none. It may hold a secret.
func canonicalPayload(p json.RawMessage) (json.RawMessage, error) {
	if len(p) == 0 {
		return json.RawMessage("{}"), nil
	}
	if len(p) > MaxPayload {
		return nil, &refusal.FieldError{Field: "payload", Problem: fmt.Sprintf("must be at most %d bytes, is %d", MaxPayload, len(p))}
	}
	if !utf8.Valid(p) || !json.Valid(p) || strictjson.Kind(p) != "an object" {
		return nil, &refusal.FieldError{Field: "payload", Problem: "must be a JSON object in UTF-8"}
	}
	if path, found := inexactNumber(p); found {
		return nil, &refusal.FieldError{Field: "payload" + path, Problem: "is a number that some JSON readers round; write it as a string"}
	}
	canonical, err := binding.CanonicalPayload(p)
	if err != nil {
		return nil, err
	}
	if len(canonical) > 2*MaxPayload {
		return nil, &refusal.FieldError{Field: "payload", Problem: fmt.Sprintf("must be at most %d bytes in canonical form, is %d", 2*MaxPayload, len(canonical))}
	}
	return canonical, nil
}

// inexactNumber returns the path of a number of a JSON text that isInexact. It
// decodes only a text with such a number, since a decoded value is many times as large as its text.
func inexactNumber(text []byte) (path string, found bool) {
	if !holdsInexactNumber(text) {
		return "", false
	}
	var object map[string]any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if dec.Decode(&object) != nil {
		return "", true
	}
	return inexactNumberIn(object)
}

// holdsInexactNumber reports whether a valid JSON text has a number that isInexact.
func holdsInexactNumber(text []byte) bool {
	for at := 0; at < len(text); at++ {
		switch c := text[at]; {
		case c == '"':
			for at++; text[at] != '"'; at++ {
				if text[at] == '\\' {
					at++
				}
			}
		case c == '-' || '0' <= c && c <= '9':
			number := text[at:]
			if end := bytes.IndexFunc(number, func(r rune) bool { return !strings.ContainsRune("0123456789+-.eE", r) }); end >= 0 {
				number = number[:end]
			}
			if isInexact(string(number)) {
				return true
			}
			at += len(number) - 1
		}
	}
	return false
}

// inexactNumberIn returns the path, relative to v, of a number that isInexact.
func inexactNumberIn(v any) (path string, found bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, member := range v {
			if below, found := inexactNumberIn(member); found {
				return "." + k + below, true
			}
		}
	case []any:
		for i, member := range v {
			if below, found := inexactNumberIn(member); found {
				return fmt.Sprintf("[%d]%s", i, below), true
			}
		}
	case json.Number:
		return "", isInexact(v.String())
	}
	return "", false
}

// isInexact reports whether readers of JSON may round a number: an integer beyond 2^53-1, a larger number with more
// digits than a double holds, or one that is too large or too small for a double. Canonical JSON may round the last
// digits of a smaller fraction.
func isInexact(number string) bool {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return true
	}
	if f != 0 && math.Abs(f) <= settlement.MaxMinor {
		return false
	}
	written := significantDigits(number)
	return f != 0 && !strings.ContainsAny(number, ".eE") || written != significantDigits(strconv.FormatFloat(f, 'e', -1, 64))
}

// significantDigits returns the digits of a number without sign, point, exponent, and the zeros at both ends.
func significantDigits(number string) string {
	if exponent := strings.IndexAny(number, "eE"); exponent >= 0 {
		number = number[:exponent]
	}
	return strings.Trim(strings.NewReplacer("-", "", ".", "").Replace(number), "0")
}

func (a Adjudication) target() string {
	if a.Target == "" {
		return escrow.DefaultTarget
	}
	return a.Target
}

func (a Adjudication) actor() string {
	if a.Actor == "" {
		return "system:escrow"
	}
	return a.Actor
}

// operationKey returns the first operation key of the decision: see binding.OperationKey.
func (a Adjudication) operationKey() escrow.OperationKey {
	return binding.OperationKey(a.Instruction, a.Target, 0)
}

// contentDigest differs between different adjudications of the same generation.
func (a Adjudication) contentDigest(canonical json.RawMessage) [32]byte {
	return binding.ContentDigest(a.Instruction, a.Target, canonical)
}

// inputProblems holds what is wrong with an input, as *FieldError. Unsafe input has a secret, an id that
// can be taken for another one, or a wrong Request. An earlier version may have accepted it, and an accepted submission must
// never be answered as refused, so unsafe input is looked up first.
type inputProblems struct {
	malformedErrs []error
	unsafeInput   []unsafeInput
	formErrs      []error         // likewise unsafe: ids that can be taken for another one
	canonical     json.RawMessage // form of the payload, unless it is malformed
}

// unsafeInput is a value that is unsafe. If it looks like a secret, the tenant's policy of references may take it.
type unsafeInput struct {
	problem error
	field   string // of the value that looks like a secret; empty: the policy can't take it
	value   string // of an id; of a payload its text
}

func (p *inputProblems) malformed() error { return errors.Join(p.malformedErrs...) }
func (p *inputProblems) unsafe() error    { return p.unsafeBeside(p.formErrs) }

// unsafeBeside joins the problems of unsafe input behind those of the forms of ids.
func (p *inputProblems) unsafeBeside(forms []error) error {
	errs := slices.Clone(forms)
	for _, input := range p.unsafeInput {
		errs = append(errs, input.problem)
	}
	return errors.Join(errs...)
}

// takeReferences removes the problems of values that look like secrets, and that the policy of the tenant takes as
// references of a bank. It reads the policy only if there is such a value. Its error is one of reading the policy.
func (p *inputProblems) takeReferences(ctx context.Context, policy *referencepolicy.Store, tenant string) error {
	left := p.unsafeInput[:0]
	for _, input := range p.unsafeInput {
		if input.field != "" {
			problem, err := policy.Recheck(ctx, tenant, input.field, input.value)
			if err != nil {
				return err
			}
			input.problem = problem
		}
		if input.problem != nil {
			left = append(left, input)
		}
	}
	p.unsafeInput = left
	return nil
}

func (p *inputProblems) addMalformed(err error) { p.malformedErrs = appendError(p.malformedErrs, err) }

func (p *inputProblems) addUnsafe(err error) {
	if err != nil {
		p.unsafeInput = append(p.unsafeInput, unsafeInput{problem: err})
	}
}

// addSecret adds the refusal of a value that looks like a secret, unless it is nil.
func (p *inputProblems) addSecret(err error, field, value string) {
	if err != nil {
		p.unsafeInput = append(p.unsafeInput, unsafeInput{err, field, value})
	}
}

// appendError is append for an error that may be nil.
func appendError(errs []error, err error) []error {
	if err == nil {
		return errs
	}
	return append(errs, err)
}

// checkID refuses an id, unless it is empty: as malformed if no version accepted it, as unsafe if it holds a secret or can
// be taken for another id.
func (p *inputProblems) checkID(field, id string, limit int) {
	if id != "" {
		p.addMalformed(validate.KnownID(field, id, limit))
	}
	p.checkForm(field, id)
}

// checkForm refuses an id as unsafe if it holds a secret or can be taken for another id.
func (p *inputProblems) checkForm(field, id string) {
	p.formErrs = appendError(p.formErrs, validate.IDForm(field, id))
	p.addSecret(validate.NoSecret(field, id), field, id)
}

// unsafeIfNew is unsafe, but for ids that a tenant, a case or an escrow has: earlier versions accepted them, and they
// name nothing new.
func (p *inputProblems) unsafeIfNew(ctx context.Context, cases *journal.Cases, of journal.SubmittedIDs) (unsafe, err error) {
	if len(p.formErrs) == 0 {
		return p.unsafe(), nil
	}
	tenant, subject, escrow, err := cases.KnownIDs(ctx, of)
	if err != nil {
		return nil, err
	}
	isKnown := map[string]bool{"tenant": tenant, "transaction_receipt_id": subject, "retry_key": subject, "escrow_reference": escrow}
	refused := slices.DeleteFunc(p.formErrs, func(err error) bool {
		var wrong *refusal.FieldError
		return errors.As(err, &wrong) && isKnown[wrong.Field]
	})
	return p.unsafeBeside(refused), nil
}

// checkPayload refuses an invalid payload. If the payload holds a secret it reports only that,
// since the name of a member may be the secret.
func (p *inputProblems) checkPayload(text json.RawMessage) {
	canonical, err := canonicalPayload(text)
	p.canonical = canonical
	if len(text) > MaxPayload || !json.Valid(text) {
		p.addMalformed(err)
		return
	}
	switch secret := validate.NoSecretIn(text); {
	case secret == nil:
		p.addMalformed(err)
	case err != nil:
		p.addMalformed(secret)
	default:
		p.addSecret(secret, references.PayloadPrefix, string(text))
	}
}
