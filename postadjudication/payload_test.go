package postadjudication_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// A number that canonical JSON would round is refused with its path.
func TestAPayloadNamesTheNumberThatWouldBeRounded(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		`{"a":9007199254740993}`:                "payload.a",
		`{"a":[1,{"b":[0,-9007199254740993]}]}`: "payload.a[1].b[1]",
		`{"a":9007199254740993.0}`:              "payload.a",
		`{"a":12345678901234567890e0}`:          "payload.a",
		`{"a":[-900719925474099.3e1]}`:          "payload.a[0]",
		`{"a":1e400}`:                           "payload.a",
		`{"a":1e-400}`:                          "payload.a",
		`{"a":[1e300,1.50e20,0.000,-0e9,5e-324,9007199254740994.0]}`:    "",
		`{"a":9007199254740991,"b":0.1,"c":[1e3,-0]}`:                   "",
		`{"\"1":"\\","a":[true,null,-1E-9,1E400]}`:                      "payload.a[3]",
		`{"\"":"9007199254740993, \\\" 1e400","9007199254740993":"\\"}`: "",
	} {
		_, err := postadjudication.CanonicalPayload(json.RawMessage(text))
		var refused *refusal.FieldError
		if errors.As(err, &refused); (refused == nil) != (field == "") || refused != nil && refused.Field != field {
			t.Errorf("%s: %v, want %q", text, err, field)
		}
	}
}

// An accepted payload has one canonical form, that of another implementation, which is accepted unchanged.
func FuzzAPayloadHasOneForm(f *testing.F) {
	for _, seed := range []string{`{}`, `{"b":1,"a":[1.5,null]}`, `{"a":1e400}`, `{"a":9007199254740993}`, `{"a":1,"a":2}`, `{"a":"\ud800"}`, `null`, `{"password":"x"}`, `{"a":-0}`, `{"a":1E2}`,
		`{ "é" : [ "\u0000\u001f\u007f\u2028</\/\"\\" , 1e-7 , 5e-324 , 123456789.125e10 ] , "\ud83d\ude00" : { "b" : {} , "a" : [ ] } , "\ufb33" : true }`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]any
		numbers := json.NewDecoder(bytes.NewReader(text))
		numbers.UseNumber()
		if json.Valid(text) && numbers.Decode(&object) == nil {
			if _, found := postadjudication.InexactNumberIn(object); found && !postadjudication.HoldsInexactNumber(text) {
				t.Errorf("a number of %s would be rounded", text)
			}
		}
		form, err := postadjudication.CanonicalPayload(text)
		want, wantErr := jcs.Transform(text)
		if err != nil || len(text) == 0 {
			if err != nil && strings.Contains(err.Error(), "no canonical form") && wantErr == nil {
				t.Errorf("%s: %v, although it is %s", text, err, want)
			}
			return
		}
		if wantErr != nil || string(form) != string(want) {
			t.Errorf("%s is %s, want %s, %v", text, form, want, wantErr)
		}
		again, err := postadjudication.CanonicalPayload(form)
		var refused *refusal.FieldError
		if errors.As(err, &refused) { // its canonical form is too long, or has 1e20 written out as an integer
			return
		}
		if err != nil || string(again) != string(form) {
			t.Errorf("%s is %s, then %s, %v", text, form, again, err)
		}
		if !json.Valid(form) {
			t.Errorf("%s is not JSON", form)
		}
	})
}
