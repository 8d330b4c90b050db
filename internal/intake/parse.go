package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/internal/strictjson"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// parser parses a line and collects its problems.
type parser struct {
	line     int
	problems []Problem
	unsafe   bool // all problems are secrets or format characters
}

// ParseObject parses an adjudication of a tenant. The object may name the tenant, but no other
// one. The adjudication is readable and valid if and only if there are no problems; their Line
// is 0. A secret in it is no problem here: Submit refuses it, unless the adjudication was
// accepted before.
func ParseObject(text []byte, tenant string) (postadjudication.Adjudication, []Problem) {
	p := parser{}
	a := p.adjudication(text)
	switch a.Tenant {
	case tenant:
	case "":
		a.Tenant = tenant
	default:
		p.addProblem("tenant", "is not the tenant of the request; leave it out")
	}
	if len(p.problems) == 0 {
		if malformed, unsafe := a.Check(); malformed != nil {
			p.refused(errors.Join(malformed, unsafe))
		}
	}
	return a, p.problems
}

// maxProblems is how many problems of an adjudication are named: one with many names would have more of them than its
// own length.
const maxProblems = 20

// addProblem adds a problem, redacted: an unknown name or a refused number may be a secret.
func (p *parser) addProblem(field, format string, args ...any) {
	if len(p.problems) == maxProblems {
		return
	}
	p.problems = append(p.problems, Problem{Line: p.line, Field: redact.Text(field), Problem: redact.Text(fmt.Sprintf(format, args...))})
}

// malformed adds the problem of the JSON of a field; an empty field means the line.
func (p *parser) malformed(field string, err error) {
	var wrong *strictjson.Error
	if !errors.As(err, &wrong) {
		p.addProblem(field, "%s", err)
		return
	}
	p.addProblem(strings.Trim(field+"."+wrong.Field, "."), "%s", wrong.Problem)
}

func (p *parser) adjudication(text []byte) postadjudication.Adjudication {
	a := postadjudication.Adjudication{Instruction: settlement.Instruction{Generation: 1}}
	var simulate json.RawMessage
	var members []member
	err := strictjson.CheckObject(text)
	if err == nil {
		members, err = object(text)
	}
	if err != nil {
		p.malformed("", err)
		return a
	}
	for _, m := range members {
		switch m.name {
		case "transaction_receipt_id":
			a.TransactionReceiptID = p.text(m)
		case "submission_receipt_id":
			a.SubmissionReceiptID = p.text(m)
		case "adjudication_id":
			a.AdjudicationID = p.text(m)
		case "generation":
			a.Generation = int(p.integer(m.name, m.value))
		case "tenant":
			a.Tenant = p.text(m)
		case "escrow_reference":
			a.EscrowReference = p.text(m)
		case "outcome":
			a.Outcome = settlement.Outcome(p.text(m))
		case "amount":
			a.Amount = p.money(m)
		case "held":
			a.Held = p.money(m)
		case "target":
			a.Target = p.text(m)
		case "payload":
			a.Payload = p.payload(m)
		case "simulate":
			simulate = p.simulateWords(m)
		default:
			p.addProblem(m.name, "is not a known member")
		}
	}
	if simulate != nil && len(p.problems) == 0 {
		a.Payload = p.withSimulate(a.Payload, simulate)
	}
	return a
}

// check applies the rules of every submission, so that a whole file can be checked before
// anything is submitted. A generation of zero was given explicitly: an absent one reads as 1.
func (p *parser) check(a postadjudication.Adjudication) {
	malformed, unsafe := a.Check()
	p.refused(errors.Join(malformed, unsafe))
	p.unsafe = malformed == nil && unsafe != nil
}

// refused adds the reasons for which an adjudication is refused.
func (p *parser) refused(why error) {
	for _, err := range flatten(why) {
		var field *refusal.FieldError
		if errors.As(err, &field) {
			p.addProblem(field.Field, "%s", field.Problem)
			continue
		}
		p.addProblem("", "%s", err)
	}
}

func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}

func (p *parser) text(m member) string {
	var s *string
	if err := json.Unmarshal(m.value, &s); err != nil || s == nil {
		p.addProblem(m.name, "must be a string, is %s", strictjson.Kind(m.value))
		return ""
	}
	return *s
}

func (p *parser) integer(field string, value json.RawMessage) int64 {
	var n *int64
	if err := json.Unmarshal(value, &n); err != nil || n == nil {
		p.addProblem(field, "must be a whole number within 64 bits, is %s", describeValue(value))
		return 0
	}
	return *n
}

func (p *parser) money(m member) settlement.Money {
	var out settlement.Money
	members, err := object(m.value)
	if err != nil {
		p.malformed(m.name, err)
		return out
	}
	for _, part := range members {
		full := member{name: m.name + "." + part.name, value: part.value}
		switch part.name {
		case "minor":
			out.Minor = p.integer(full.name, part.value)
		case "currency":
			out.Currency = p.text(full)
		default:
			p.addProblem(full.name, "is not a known member")
		}
	}
	return out
}

func (p *parser) payload(m member) json.RawMessage {
	if _, err := object(m.value); err != nil {
		p.malformed(m.name, err)
		return nil
	}
	return m.value
}

func (p *parser) simulateWords(m member) json.RawMessage {
	var word *string
	var list []*string
	switch {
	case json.Unmarshal(m.value, &word) == nil && word != nil:
		return m.value
	case json.Unmarshal(m.value, &list) == nil && len(list) > 0:
		for _, w := range list {
			if w == nil {
				p.addProblem(m.name, "must be a string or a list of strings, has null")
				return nil
			}
		}
		return m.value
	}
	p.addProblem(m.name, "must be a string or a list of strings, is %s", strictjson.Kind(m.value))
	return nil
}

// withSimulate adds simulate to the payload, where the escrow service reads it.
func (p *parser) withSimulate(payload, simulate json.RawMessage) json.RawMessage {
	members := map[string]json.RawMessage{}
	if len(payload) > 0 {
		if err := json.Unmarshal(payload, &members); err != nil {
			p.addProblem("payload", "%s", err)
			return payload
		}
	}
	if _, twice := members["simulate"]; twice {
		p.addProblem("simulate", "is both in the line and in its payload")
		return payload
	}
	members["simulate"] = simulate
	out, err := json.Marshal(members)
	if err != nil {
		p.addProblem("payload", "%s", err)
	}
	return out
}
