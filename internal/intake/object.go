package intake

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/recourse-dev/recourse/internal/strictjson"
	"github.com/recourse-dev/recourse/postadjudication"
)

// member is a member of an object, as raw JSON.
type member struct {
	name  string
	value json.RawMessage
}

// object splits a valid object into its members, in order.
func object(text []byte) ([]member, error) {
	if k := strictjson.Kind(text); k != "an object" {
		return nil, &strictjson.Error{Problem: "must be an object, is " + k}
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(text)) // which does not copy the text
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var out []member
	for dec.PeekKind() == jsontext.KindString {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		m := member{name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		m.value = json.RawMessage(value.Clone())
		out = append(out, m)
	}
	return out, nil
}

// describeValue returns a short number as it was written, and the kind of any other value: a
// value may be long or secret.
func describeValue(value json.RawMessage) string {
	if k := strictjson.Kind(value); k != "a number" || len(value) > 32 {
		return k
	}
	return string(value)
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
