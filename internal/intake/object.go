package intake

import (
	"bytes"
	"encoding/json"

	"github.com/recourse-dev/recourse/internal/strictjson"
)

// member is one member of an object, as it was written.
type member struct {
	name  string
	value json.RawMessage
}

// object splits a valid object into its members, in their order.
func object(text []byte) ([]member, error) {
	if k := strictjson.Kind(text); k != "an object" {
		return nil, &strictjson.Error{Problem: "must be an object, is " + k}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	var out []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)} // a key, for the text is valid
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// describeValue is a number as it was written, and the kind of anything else: a value may
// be long or secret.
func describeValue(value json.RawMessage) string {
	if k := strictjson.Kind(value); k != "a number" || len(value) > 32 {
		return k
	}
	return string(value)
}
