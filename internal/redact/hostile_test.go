package redact

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// hostileParts lists parts of texts. Each could make a naive scanner read the rest of the text again.
var hostileParts = map[string]string{
	"code":       "pin:",
	"code_equal": "otp=",
	"signature":  "sig=",
	"brackets":   "pin:[",
	"quotes":     `pin:\"`,
	"jwt":        "eyJ-",
	"dashes":     "a-",
	"number":     "1 ",
	"pem":        "-----BEGIN ",
	"url":        "://a:b",
	"bearer":     "bearer-",
	"key":        "sk-",
	"tags":       "4<b>",
	"open_tag":   "<password a",
	"list":       `["password",`,
	"form":       `name="password" `,
	"flag":       "--token ",
	"quoted":     "=41",
	"octal":      `\064`,
	"dates":      "2026-11-211",
	"phrase":     "пароль",
}

// BenchmarkHostileTexts reports the time for a byte, which must not grow with the text.
func BenchmarkHostileTexts(b *testing.B) {
	for name, part := range hostileParts {
		for _, size := range []int{16 << 10, 64 << 10} {
			in := strings.Repeat(part, size/len(part))
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				for b.Loop() {
					ContainsSecret(in)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(in)), "ns/byte")
			})
		}
	}
}

// BenchmarkFindDeep reports the time for a byte of many values below many keys, which must not grow with the depth.
func BenchmarkFindDeep(b *testing.B) {
	for _, depth := range []int{250, 1000} {
		in := json.RawMessage(strings.Repeat(`{"a":`, depth) + "[1" + strings.Repeat(",1", 10*depth) + "]" + strings.Repeat("}", depth))
		b.Run(fmt.Sprint(depth), func(b *testing.B) {
			for b.Loop() {
				Find(in)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(in)), "ns/byte")
		})
	}
}

func TestAValueUnderACodeNameIsScannedInPart(t *testing.T) {
	t.Parallel()
	for _, begins := range []string{"", "[", `"`, `\"`} {
		sc := scanner{s: "pin:" + begins + strings.Repeat("x", 4*maxCodeScan)}
		if near := sc.beginning(len("pin:")); len(near) > maxCodeScan || len(near) < maxCodeScan/2 {
			t.Errorf("%q: %d bytes read", begins, len(near))
		}
	}
	long := "otp 1 sig=1" + strings.Repeat("x", 4*maxCodeScan) + " b"
	if got, want := Text(long), "otp 1 sig="+RedactedMark+" b"; got != want {
		t.Errorf("a long value is not replaced whole: %q", got)
	}
}

func TestARunWithoutADotIsReadOnceForATokenInIt(t *testing.T) {
	t.Parallel()
	s := strings.Repeat("eyJ-", 100)
	sc := scanner{s: s + " eyJhbGciOiJIUzI1NiJ9.a.b"}
	if sc.jwt(0); sc.noJWTBefore != len(s) {
		t.Errorf("the run ends at %d, remembered is %d", len(s), sc.noJWTBefore)
	}
	if sc.run(); string(sc.out) != s+" "+RedactedMark {
		t.Errorf("a token behind the run: %q", sc.out)
	}
}

// TestFindReadsTheNamesAboveAValueOnce counts allocations: each name that is read takes one.
func TestFindReadsTheNamesAboveAValueOnce(t *testing.T) {
	const depth, values = 100, 500
	in := json.RawMessage(strings.Repeat(`{"note":`, depth) + "[1" + strings.Repeat(",1", values-1) + "]" + strings.Repeat("}", depth))
	if took := testing.AllocsPerRun(3, func() { Find(in) }); took > 10*(depth+values) {
		t.Errorf("%d names and %d values took %.0f allocations", depth, values, took)
	}
}
