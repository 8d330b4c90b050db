package intake

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/recourse-dev/recourse/internal/strictjson"
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
