package postadjudication

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/replay"
)

func FuzzARuleIsReadAsItIsWritten(f *testing.F) {
	for _, seed := range []string{`{"name":"again","filter":{"error_type":"http.refused"},"after":"1h","max_replays":3}`, `{"name":"a","filter":null}`, `{"name":"a","filter":{}}`, `{}`, `7`, `{"Name":"a"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rule, err := replay.Parse(text)
		if err != nil {
			return
		}
		written, err := json.Marshal(rule)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := replay.Parse(written); err != nil || !reflect.DeepEqual(again, rule) {
			t.Errorf("%s reads as %+v, then as %+v, %v", written, rule, again, err)
		}
	})
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
			if _, found := inexactNumberIn(object); found && !holdsInexactNumber(text) {
				t.Errorf("a number of %s would be rounded", text)
			}
		}
		form, err := canonicalPayload(text)
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
		again, err := canonicalPayload(form)
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
