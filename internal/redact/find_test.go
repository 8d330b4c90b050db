package redact

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestFindNamesTheFirstSecret(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"card in an object", `{"payload":{"card":{"number":"4111111111111111"}}}`, "payload.card.number"},
		{"item of a list", `{"payload":{"items":["a",{"b":1},"DE89370400440532013000"]}}`, "payload.items[2]"},
		{"list of lists", `[[1],["x","Bearer abc"]]`, "[1][1]"},
		{"whole document", `"postgres://u:p@h"`, ""},
		{"secret name", `{"a":1,"user":{"Password":"x"}}`, "user.Password"},
		{"list under a secret name", `{"tokens":[],"token":["","x"]}`, "token[1]"},
		{"api key", `{"stripeApiKey":"x"}`, "stripeApiKey"},
		{"card code as a number", `{"cvv":123}`, "cvv"},
		{"card as a number", `{"n":4111111111111111}`, "n"},
		{"secret in a key", `{"a":{"b":1,"4111111111111111":2}}`, "a"},
		{"duplicate key", `{"a":"4111111111111111","a":"b"}`, "a"},
		{"escaped", `{"a":"\u0034111111111111111"}`, "a"},
		{"first of two", `{"a":["x",{"pwd":"1"}],"token":"2"}`, "a[1].pwd"},
		{"behind the limit of Text", `{"a":"` + strings.Repeat("word ", Limit) + `4111111111111111"}`, "a"},
		{"number under a secret name", `{"password":123456}`, "password"},
		{"token as a number", `{"n":1,"token":99}`, "token"},
		{"pin as a number", `{"card":{"pin":1234}}`, "card.pin"},
		{"object under a secret name", `{"password":{"v":"hunter2"}}`, "password.v"},
		{"deep under a secret name", `{"credentials":[{"a":{"b":["",7]}}]}`, "credentials[0].a.b[1]"},
		{"authorization", `{"authorization":"abc"}`, "authorization"},
		{"authorization in a list", `{"headers":{"Authorization":["abc"]}}`, "headers.Authorization[0]"},
		{"digits of another script", `{"a":"٤١١١١١١١١١١١١١١١"}`, "a"},
		{"value beside a secret name", `{"headers":[{"name":"Host","value":"h"},{"name":"X-Api-Key","value":"abc"}]}`, "headers[1].value"},
		{"card as a float", `{"n":4.111111111111111e15}`, "n"},
		{"card with a zero fraction", `{"n":4111111111111111.0}`, "n"},
		{"after a syntax error", `{"a":1,"b" 4111111111111111`, "b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, found := Find(json.RawMessage(tt.in)); !found || got != tt.want {
				t.Errorf("Find = %q, %v; want %q", got, found, tt.want)
			}
		})
	}
}

func TestFindLetsOrdinaryPayloadsPass(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"nothing":         ``,
		"null":            `null`,
		"adjudication":    `{"transaction_receipt_id":"tr_1","outcome":"release","amount":125000,"generation":1,"note":"ok, pay"}`,
		"times":           `{"ms":1763717376001,"us":1763717376000008,"ns":1763717376000000004,"s":"1763717376001"}`,
		"uuid":            `{"id":"41111111-1111-1111-4111-111111111111"}`,
		"empty secret":    `{"password":"","token":null,"secret":{},"api_key":[]}`,
		"redacted before": `{"password":"[redacted]","note":"paid with [card]"}`,
		"a payment's":     `{"authorization":{"id":"auth_1","amount":5},"require_password":true,"pass":false,"password":{"set":true}}`,
		"numbers":         `{"tokens":5,"n":-4111111111111111,"m":4111111111111111.5,"e":1e15}`,
		"names":           `{"fields":[{"name":"password","type":"string"},{"name":"note","value":"x"}]}`,
		"syntax error":    `{"a":1,,}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, found := Find(json.RawMessage(in)); found {
				t.Errorf("found %q", got)
			}
		})
	}
}

func TestFindTakesAnyDepth(t *testing.T) {
	t.Parallel()
	const depth = 100_000
	in := strings.Repeat("[", depth) + `"Bearer abc"` + strings.Repeat("]", depth)
	if _, found := Find(json.RawMessage(in)); !found {
		t.Error("not found")
	}
}

func TestADocumentKeepsAllButItsSecrets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"next_page_token":"abc","sent": 3}`:                `{"next_page_token":"[redacted]","sent": 3}`,
		`{ "id" : 4111111111111111 , "ok":true}`:             `{ "id" : "[redacted]" , "ok":true}`,
		`{"password":{"is":["x",1,null,true]},"a":[1.0,-0]}`: `{"password":{"is":["[redacted]","[redacted]",null,true]},"a":[1.0,-0]}`,
		`["card 4111 1111 1111 1111",{"pin":1234}]`:          `["[redacted]",{"pin":"[redacted]"}]`,
		`"4111111111111111"`:                                 `"[redacted]"`,
		`{"a":"b"}`:                                          `{"a":"b"}`,
	} {
		if out, ok := Document(json.RawMessage(text)); !ok || string(out) != want {
			t.Errorf("%s: %s, %v; want %s", text, out, ok, want)
		}
	}
	for _, text := range []string{`{"4111111111111111":1}`, `{"password":`, `no`, `1 2`, ``} {
		if out, ok := Document(json.RawMessage(text)); ok {
			t.Errorf("%s: %s", text, out)
		}
	}
}

// A value that a caller knows as a reference is no card; every other secret in it, or around it, is found.
func TestFindUnlessPassesReferencesAlone(t *testing.T) {
	t.Parallel()
	const number = "5010123456789012"
	kid := func(pointer, value string) bool { return pointer == "/lines/*/kid" && strings.HasPrefix(value, "5010") }
	for _, c := range []struct{ in, want string }{ // of what is found
		{`{"lines":[{"kid":"5010123456789012"},{"kid":5010123456789012}]}`, ""},
		{`{"lines":[{"kid":"5010123456789012 Bearer abc"}]}`, "lines[0].kid"},
		{`{"lines":[{"kid":"5010123456789012 password=hunter2"}]}`, "lines[0].kid"},
		{`{"lines":[{"kid":"5010123456789012 %70assword%3Dhunter2"}]}`, "lines[0].kid"},
		{`{"lines":[{"kid":"5010123456789012 DE89370400440532013000"}]}`, "lines[0].kid"},
		{`{"lines":[{"kid":"4111111111111111"}]}`, "lines[0].kid"},
		{`{"kid":"5010123456789012"}`, "kid"},
		{`{"lines":{"0":{"kid":"5010123456789012"}}}`, "lines.0.kid"},
		{`{"lines":{"*":{"kid":"5010123456789012"}}}`, "lines.*.kid"},
		{`{"lines/*/kid":"5010123456789012"}`, "lines/*/kid"},
		{`{"lines[0].kid":"5010123456789012"}`, "lines[0].kid"},
		{`{"lines":[{"kid":{"5010123456789012":1}}]}`, "lines[0].kid"},
		{`{"lines":[{"kid":["5010123456789012"]}]}`, "lines[0].kid[0]"},
		{`{"lines":[{"kid":"5010123456789012","kid":"4111111111111111"}]}`, "lines[0].kid"},
		{`{"token":{"x":1},"lines":[{"kid":"5010123456789012"}]}`, "token.x"},
		{`{"lines":[{"kid":"5010123456789012"}], 4111111111111111`, ""},
	} {
		got, found := FindUnless(json.RawMessage(c.in), kid)
		if found != (c.want != "" || strings.HasSuffix(c.in, ", 4111111111111111")) || got != c.want {
			t.Errorf("%s: %q, %v", c.in, got, found)
		}
	}
	under := func(pointer, _ string) bool { return pointer == "/password/kid" }
	if _, found := FindUnless(json.RawMessage(`{"password":{"kid":"`+number+`"}}`), under); !found {
		t.Error("a value under a secret name passes")
	}
}

func TestNoPointersOfTwoPathsAreEqual(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, in := range []string{`{"a":{"b":%}}`, `{"a.b":%}`, `{"a/b":%}`, `{"a~1b":%}`, `{"a":[%]}`, `{"a":{"*":%}}`, `{"a":{"~2":%}}`, `{"a":{"0":%}}`, `{"a[0]":%}`, `{"a":{"":%}}`, `{"":%}`, `[%]`, `%`} {
		FindUnless(json.RawMessage(strings.Replace(in, "%", `"4111111111111111"`, 1)), func(pointer, _ string) bool {
			if other, twice := seen[pointer]; twice {
				t.Errorf("%s and %s are both at %q", in, other, pointer)
			}
			seen[pointer] = in
			return true
		})
	}
	if len(seen) != 13 {
		t.Errorf("%d of 13 paths were asked for", len(seen))
	}
}

func TestASecretBesideACardIsMoreThanCards(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"": false, "4111111111111111": false, "KID 4111 1111 1111 1111": false, "4111111111111111 and 5010123456789012": false, "pay_1": false,
		"4111111111111111 Bearer abcdef": true, "token=abc123 4111111111111111": true, "DE89370400440532013000": true, "NDExMTExMTExMTExMTExMQ==": true, "4111111111111111 %74oken%3Dabc123": true,
	} {
		if got := HoldsMoreThanCards(s); got != want {
			t.Errorf("%q: %t", s, got)
		}
	}
}
