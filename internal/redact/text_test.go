package redact

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextReplacesSecrets(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"card", "charge 4111111111111111 failed", "charge [card] failed"},
		{"card with spaces", "pan 4111 1111 1111 1111.", "pan [card]."},
		{"card with dashes", "(4111-1111-1111-1111)", "([card])"},
		{"card as Amex prints it", "3782 822463 10005", "[card]"},
		{"card of 13 digits", "4222222222222", "[card]"},
		{"card of 19 digits", "x 6304000000000000000 y", "x [card] y"},
		{"card digit by digit", "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "[card]"},
		{"card with wide gaps", "4111 - 1111 - 1111 - 1111", "[card]"},
		{"card with no-break spaces", "4111\u00a01111\u00a01111\u00a01111", "[card]"},
		{"card behind a small number", "attempt 3 4111 1111 1111 1111 refused", "attempt 3 [card] refused"},
		{"card before a small number", "4111111111111111 2", "[card] 2"},
		{"card behind a date", "2026-11-21 4111 1111 1111 1111", "2026-11-21 [card]"},
		{"card glued to words", "pan4111111111111111x", "pan[card]x"},
		{"card in a name", "4111111111111111token=abc", "[card]token=[redacted]"},
		{"two cards", "4111111111111111,5555555555554444", "[card],[card]"},
		{"IBAN", "to DE89370400440532013000 now", "to [iban] now"},
		{"IBAN with spaces", "to DE89 3704 0044 0532 0130 00 was refused", "to [iban] was refused"},
		{"IBAN in small letters", "gb29nwbk60161331926819", "[iban]"},
		{"IBAN of Malta", "MT84 MALT 0110 0001 2345 MTLC AST0 01S", "[iban]"},
		{"authorization header", "Authorization: Bearer abc.def", "Authorization: [redacted]"},
		{"authorization header in quotes", `-H "Authorization: Basic dTpw" http://x`, `-H "Authorization: [redacted]" http://x`},
		{"authorization of an odd scheme", "authorization: Digest a=\"b\", c=\"d\"\nnext", "authorization: [redacted]\nnext"},
		{"headers printed by Go", "map[Accept:[*/*] Authorization:[Bearer abc]]", "map[Accept:[*/*] Authorization:[redacted]]"},
		{"cookie", "Cookie: a=b; c=d\r\nHost: x", "Cookie: [redacted]\r\nHost: x"},
		{"bearer", "sent Bearer xyz, refused", "sent Bearer [redacted], refused"},
		{"basic", "Basic dXNlcjpwYXNz", "Basic [redacted]"},
		{"key=", "GET /v1?key=abc&amount=5", "GET /v1?key=[redacted]&amount=5"},
		{"query string", "https://h/p?x=1&api_key=a%20b&y=2", "https://h/p?x=1&api_key=[redacted]&y=2"},
		{"dsn", "host=h password=pw user=u", "host=h password=[redacted] user=u"},
		{"dsn in quotes", "password='it''s' user=u", "password='[redacted]' user=u"},
		{"odbc", "PWD={a;b};UID=c", "PWD=[redacted];UID=c"},
		{"colon", "Password: hunter2, try again", "Password: [redacted], try again"},
		{"name with a prefix", "STRIPE_SECRET_KEY=abc X-Api-Key: def dbPassword=g", "STRIPE_SECRET_KEY=[redacted] X-Api-Key: [redacted] dbPassword=[redacted]"},
		{"flag", "--passwd=abc", "--passwd=[redacted]"},
		{"JSON", `{"token":"a\"b","amount":5}`, `{"token":"[redacted]","amount":5}`},
		{"JSON with blanks", `{"client_secret" : "a b"}`, `{"client_secret" : "[redacted]"}`},
		{"JSON in JSON", `"{\"password\":\"hunter2\",\"n\":1}"`, `"{\"password\":\"[redacted]\",\"n\":1}"`},
		{"JSON object", `{"secret":{"a":["b"]},"n":1}`, `{"secret":[redacted],"n":1}`},
		{"JSON number", `{"cvv":123}`, `{"cvv":[redacted]}`},
		{"unclosed quote", `password="abc def`, `password="[redacted]`},
		{"stripe key", "key sk_live_4eC39HqLyjWDarjtT1zdp7dc used", "key [redacted] used"},
		{"AWS key", "AKIAIOSFODNN7EXAMPLE", "[redacted]"},
		{"access key of ours", "ada's is rck_aB3dE5gH7jK9_x8Kq2LmN4pR6tV0zB1cD3fG5hJ7kM9nP2qS4uW6yA8e now", "ada's is [redacted] now"},
		{"JWT", "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln!", "got [redacted]!"},
		{"private key", "a -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- b", "a [redacted] b"},
		{"private key under a name", "private_key: -----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\nb", "private_key: [redacted]\nb"},
		{"token with its scheme", "X-Auth-Token: Bearer abc def", "X-Auth-Token: [redacted] def"},
		{"private key cut short", "-----BEGIN PRIVATE KEY-----\nMIIE", "[redacted]"},
		{"URL", "dial postgres://user:pass@host/db?x=1", "dial postgres://[redacted]@host/db?x=1"},
		{"URL with a slash in the password", "postgres://user:p/a@host/db", "postgres://[redacted]@host/db"},
		{"URL with user alone", "https://guest@host", "https://[redacted]@host"},
		{"NUL", "a\x00b", "a\ufffdb"},
		{"not UTF-8", "a\xff\xfeb", "a\ufffdb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Text(tt.in); got != tt.want {
				t.Errorf("Text(%q)\n got %q\nwant %q", tt.in, got, tt.want)
			}
			if again := Text(tt.want); again != tt.want {
				t.Errorf("a second time: %q", again)
			}
		})
	}
}

func TestTextLeavesTheRest(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"empty":                      "",
		"uuid":                       "run 01939123-4567-7123-8446-655440000000 failed",
		"uuid of digits":             "41111111-1111-1111-4111-111111111111",
		"uuid behind digits":         "attempt 411111 41111111-1111-1111-4111-111111111111",
		"sha-256":                    "4111111111111111a3c9f1e2b7d8e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6",
		"hexadecimal with a card in": "ab4111111111111111",
		"pointer":                    "main.f(0x4111111111111111)",
		"longer digits":              "41111111111111111111",
		"not Luhn":                   "4111111111111112",
		"too short for a card":       "411111111116",
		"time":                       "2026-11-21T09:29:36.123456Z",
		"time with a zone":           "at 2026-11-21 09:29:36+00:00",
		"number and date":            "2222222 2026-11-21T09:29:36Z",
		"fraction":                   "took 0.4111111111111111 s",
		"amounts":                    "amount 12,500.00 USD of 1000000, fee 25",
		"IBAN with a wrong check":    "DE89370400440532013001",
		"IBAN inside a word":         "xDE89370400440532013000",
		"phone":                      "+1 415-555-0100",
		"traceparent":                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"retry key":                  "retry_key=tr_1:release idempotency_key=abc",
		"plural":                     "tokens=12 used, secrets: 3",
		"scope":                      "oauth::token::Error",
		"empty value":                `password=&x=1 "token":""`,
		"prose":                      "the bearer of bad news, basic checks, Bearer token missing",
		"url without a user":         "https://example.com:8443/@name?to=a@b.c",
		"public block":               "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
		"short look-alikes":          "sk_live_ AKIA123 eyJ.a.b rck_aB3dE5gH7jK9",
		"marks":                      "[card] [iban] [redacted] Authorization: [redacted] Bearer [redacted] token=[redacted])",
		"other alphabets":            "überweisung 支払い 🙂",
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Text(in); got != in {
				t.Errorf("Text(%q) = %q", in, got)
			}
		})
	}
}

func TestTextIsBounded(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"words":      strings.Repeat("word ", Limit),
		"one word":   strings.Repeat("w", 3*Limit),
		"runes":      strings.Repeat("支", Limit),
		"growing":    strings.Repeat("pwd=a&", Limit/4),
		"not UTF-8":  strings.Repeat("\xffa", Limit),
		"deep":       strings.Repeat(`token="`, Limit),
		"urls":       strings.Repeat("://a:b@", Limit),
		"cards":      strings.Repeat("4111 1111 1111 1111 ", Limit/4),
		"one digits": strings.Repeat("1 ", Limit),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Text(in)
			if len(got) > Limit || !utf8.ValidString(got) {
				t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
			}
			if got == WithheldMark || !strings.HasSuffix(got, CutMark) {
				t.Errorf("does not end in the cut mark: ...%q", got[max(0, len(got)-40):])
			}
			if Text(got) != got {
				t.Error("a second time changes it")
			}
		})
	}
}

func TestTextCutsNoCardInHalf(t *testing.T) {
	t.Parallel()
	const number = "4111 1111 1111 1111"
	for shift := range 40 {
		in := strings.Repeat("a ", (Limit-cutSlack)/2-20) + strings.Repeat("b", shift) + " " + number + strings.Repeat(" z", cutSlack)
		if got := Text(in); strings.Contains(got, "4111") {
			t.Errorf("shift %d: half a number left: %q", shift, got[len(got)-60:])
		}
	}
}

func TestLuhnAcceptsOneCheckDigitOfTen(t *testing.T) {
	t.Parallel()
	valid := 0
	for check := range byte(10) {
		if luhn(append([]byte("411111111111111"), '0'+check)) {
			valid++
		}
	}
	if valid != 1 {
		t.Errorf("%d of ten check digits pass", valid)
	}
}
