package conformance_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// members are the members of a JSON object.
type members = map[string]any

// object is a JSON object of an answer. Its methods end the test at what is missing or has another type.
type object struct {
	t       *testing.T
	name    string // where it came from
	members members
}

func (o object) has(name string) bool {
	_, given := o.members[name]
	return given
}

// lacks checks that members are absent, and not null.
func (o object) lacks(names ...string) {
	o.t.Helper()
	for _, name := range names {
		if value, given := o.members[name]; given {
			o.t.Errorf("%s: %s must be absent, and is %s", o.name, name, text(value))
		}
	}
}

func member[T any](o object, name, kind string) T {
	o.t.Helper()
	value, is := o.members[name].(T)
	if !is {
		o.t.Fatalf("%s: %s is %s, want %s; all of it: %s", o.name, name, text(o.members[name]), kind, text(o.members))
	}
	return value
}

func (o object) text(name string) string {
	o.t.Helper()
	return member[string](o, name, "a text")
}

func (o object) flag(name string) bool {
	o.t.Helper()
	return member[bool](o, name, "a boolean")
}

func (o object) list(name string) []any {
	o.t.Helper()
	return member[[]any](o, name, "a list")
}

func (o object) object(name string) object {
	o.t.Helper()
	return object{o.t, o.name + ": " + name, member[members](o, name, "an object")}
}

// whole returns a whole number.
func (o object) whole(name string) int {
	o.t.Helper()
	n, err := strconv.Atoi(member[json.Number](o, name, "a whole number").String())
	if err != nil {
		o.t.Fatalf("%s: %s is %v, want a whole number", o.name, name, o.members[name])
	}
	return n
}

// objects returns a list of objects.
func (o object) objects(name string) []object {
	o.t.Helper()
	out := []object{}
	for i, value := range o.list(name) {
		inner, is := value.(members)
		if !is {
			o.t.Fatalf("%s: %s has %s at %d, want an object", o.name, name, text(value), i)
		}
		out = append(out, object{o.t, o.name + ": " + name + "[" + strconv.Itoa(i) + "]", inner})
	}
	return out
}

var serverTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

// instant returns a time that the server made: in UTC with Z and milliseconds.
func (o object) instant(name string) time.Time {
	o.t.Helper()
	written := o.text(name)
	if !serverTime.MatchString(written) {
		o.t.Errorf("%s: %s is %s, want UTC with Z and milliseconds", o.name, name, written)
	}
	at, err := time.Parse(time.RFC3339Nano, written)
	if err != nil {
		o.t.Fatalf("%s: %s: %v", o.name, name, err)
	}
	return at
}

// is checks a member against a value, as JSON: numbers by the form in which they are written.
func (o object) is(name string, want any) {
	o.t.Helper()
	if written, is := want.(json.RawMessage); is {
		want = decoded(o.t, written)
	}
	if value, given := o.members[name]; !given || text(value) != text(want) {
		o.t.Errorf("%s: %s is %s, want %s", o.name, name, text(value), text(want))
	}
}

// are checks several members.
func (o object) are(want members) {
	o.t.Helper()
	for name, value := range want {
		o.is(name, value)
	}
}

// failures returns errors[] of a job, which may be absent while no attempt has failed.
func (o object) failures() []object {
	o.t.Helper()
	if !o.has("errors") {
		return nil
	}
	return o.objects("errors")
}

// text returns a value as JSON, with the members of objects in order.
func text(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// decoded returns what JSON says, with numbers as they are written.
func decoded(t *testing.T, written json.RawMessage) (value any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(written))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", written, err)
	}
	return value
}

// literal is JSON that a body or a comparison has exactly as it is written.
func literal(written string) json.RawMessage { return json.RawMessage(written) }
