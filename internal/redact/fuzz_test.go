package redact

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzTextIsStableAndStorable(f *testing.F) {
	for _, seed := range []string{
		"", "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00", `{"password":"a\"b"}`, "password=token=x, y",
		"Authorization: Bearer a b", "postgres://u:p@h/d", "-----BEGIN PRIVATE KEY-----x", "eyJhbGciOiJIUzI1NiJ9.a.b",
		"\xff\x00", "token=[redacted", "pwd='[redacted]'", "Bearer [redacted]x", "cookie:\ttoken:=>\"", "1 [card] 2 3-4",
		"%34111111111111111&#52;", "u:p@h:1", "<password>x</password>", "NDExMTExMTExMTExMTExMQ==", ";4111111111111111=2512?", "٤١١١",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := Text(s)
		if twice := Text(once); twice != once {
			t.Errorf("Text(%q)\n once %q\ntwice %q", s, once, twice)
		}
		if !utf8.ValidString(once) || strings.Contains(once, "\x00") || len(once) > Limit {
			t.Errorf("Postgres can't store %q", once)
		}
	})
}

func FuzzTextLeavesNoPlantedSecret(f *testing.F) {
	f.Add("", "", uint64(411111111111111), uint8(0))
	f.Add("attempt 3 4000", "12 11", uint64(555555555555444), uint8(1))
	f.Add(`{"password":"`, `"}`, uint64(1), uint8(2))
	f.Add("ab12 2026-11-", "-----BEGIN ", uint64(378282246310005), uint8(1))
	f.Fuzz(func(t *testing.T, before, after string, number uint64, form uint8) {
		card := writeCard(number, form)
		const account = "GB29 NWBK 6016 1331 9268 19"
		got := Text(before + " " + card + " / " + account + "; " + after)
		if strings.Contains(got, card) || strings.Contains(got, account) {
			t.Errorf("%q and %q: left in %q", card, account, got)
		}
	})
}

// writeCard returns a valid card of 16 digits, written together, in groups with spaces, or with dashes.
func writeCard(number uint64, form uint8) string {
	digits := []byte("4000000000000000")
	for i := len(digits) - 2; i > 0; i-- {
		digits[i] = '0' + byte(number%10)
		number /= 10
	}
	for !luhn(digits) {
		digits[len(digits)-1]++
	}
	sep := []string{"", " ", "-"}[form%3]
	return strings.Join([]string{string(digits[:4]), string(digits[4:8]), string(digits[8:12]), string(digits[12:])}, sep)
}

func FuzzFindAgreesWithJSON(f *testing.F) {
	f.Add("note", "pay it")
	f.Add("password", "x")
	f.Add("a.b[0]", "4111 1111 1111 1111")
	f.Fuzz(func(t *testing.T, key, value string) {
		doc, err := json.Marshal(map[string]any{"list": []any{1, map[string]string{key: value}}})
		if err != nil {
			t.Fatal(err)
		}
		if field, found := Find(doc); found && !strings.HasPrefix(field, "list[1]") {
			t.Errorf("found at %q", field)
		}
		Find(json.RawMessage(value))
		for _, text := range []json.RawMessage{doc, json.RawMessage(value)} {
			out, ok := Document(text)
			if field, found := Find(out); ok && (found || !json.Valid(out)) {
				t.Errorf("%s: left at %q in %s", text, field, out)
			}
			if _, found := Find(text); ok && !found && string(out) != string(text) {
				t.Errorf("%s became %s", text, out)
			}
		}
		planted, err := json.Marshal(map[string]any{"list": []any{value, "5555555555554444"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, found := Find(planted); !found {
			t.Error("planted card not found")
		}
	})
}

func BenchmarkHolds(b *testing.B) {
	for name, in := range map[string]string{"id": "txr_0198a1b2c3d4", "uuid": "01939123-4567-7123-8446-655440000000", "principal": "user:ada@example.com"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if ContainsSecret(in) {
					b.Fatal(in)
				}
			}
		})
	}
}

func BenchmarkText(b *testing.B) {
	for name, in := range map[string]string{
		"plain":   `pq: duplicate key value violates unique constraint "runs_retry_key" (run 01939123-4567-7123-8446-655440000000)`,
		"secrets": "POST https://u:p@h/pay: 401, Authorization: Bearer abc, card 4111 1111 1111 1111",
		"hostile": strings.Repeat("1 ", Limit/2),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				Text(in)
			}
		})
	}
}
