package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/recourse-dev/recourse/internal/strictjson"
)

// Check accepts exactly the texts that encoding/json accepts, without those that readers interpret differently.
func FuzzCheckAgreesWithEncodingJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"a":2}`, `{"a":[{"b":"\ud83d\ude42"}]}`, `"\ud800"`, `[1,2.5e-3,-0,true,null]`, `{"a":1}x`, "\"\xff\"", ` `, `{"a":{"a":1},"b":2}`, `"\u00e9\\"`, `{"\u0061":1,"a":2}`, `4e444`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1000 {
			return // too deep for Check
		}
		want := utf8.Valid(text) && json.Valid(text) && !hasRepeatedMember(t, text) && !hasLoneSurrogate(text)
		err := strictjson.Check(text)
		if (err == nil) != want {
			t.Errorf("%q: %v, want it accepted: %v", text, err, want)
		}
		var wrong *strictjson.Error
		if err != nil && !errors.As(err, &wrong) {
			t.Errorf("%q: %T", text, err)
		}
		if err := strictjson.CheckFor(text, &request{}); err == nil && !want {
			t.Errorf("%q is accepted for a type", text)
		}
	})
}

// hasRepeatedMember reports whether an object of valid JSON has a member twice.
func hasRepeatedMember(t *testing.T, text []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return valueHasRepeatedMember(t, dec)
}

func valueHasRepeatedMember(t *testing.T, dec *json.Decoder) bool {
	token, err := dec.Token()
	if errors.Is(err, io.EOF) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	open, is := token.(json.Delim)
	if !is {
		return false
	}
	found, had := false, map[string]bool{}
	for dec.More() {
		if open == '{' {
			name, err := dec.Token()
			if err != nil {
				t.Fatal(err)
			}
			found = found || had[name.(string)]
			had[name.(string)] = true
		}
		found = valueHasRepeatedMember(t, dec) || found
	}
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	return found
}

// hasLoneSurrogate reports whether valid JSON has half of a surrogate pair, which encoding/json reads as U+FFFD.
func hasLoneSurrogate(text []byte) bool {
	spelled := bytes.Count(text, []byte("\ufffd")) + strings.Count(strings.ToLower(strings.ReplaceAll(string(text), `\\`, "  ")), `\ufffd`)
	read := 0
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return read > spelled
		}
		if s, ok := token.(string); ok {
			read += strings.Count(s, "\ufffd")
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for name, text := range map[string]string{
		"answer": `{"operation_key":"b6f3","status":"executed","moved":{"minor":12500,"currency":"USD"},"reference":"pay_1"}`,
		"large":  `{"lines":[` + strings.TrimSuffix(strings.Repeat(`{"sku":"a-1","count":2},`, 500), ",") + `]}`,
		"empty":  `{"adjudications":[` + strings.TrimSuffix(strings.Repeat(`{},`, 1<<20), ",") + `]}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if err := strictjson.Check([]byte(text)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
