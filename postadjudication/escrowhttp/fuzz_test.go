package escrowhttp_test

import (
	"net/http"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

func FuzzRetryAfterIsBounded(f *testing.F) {
	for _, seed := range []string{"3", "", " 3 ", "-1", "99999999999999999999", "1e3", "Wed, 21 Oct 2026 07:28:00 GMT", "Wednesday, 21-Oct-26 07:28:00 GMT", "\x00", "٣"} {
		f.Add(seed, "Wed, 21 Oct 2026 07:27:00 GMT")
		f.Add(seed, "")
	}
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, after, date string) {
		if got := escrowhttp.RetryAfter(http.Header{"Retry-After": {after}, "Date": {date}}, now); got < 0 || got > escrowhttp.MaxRetryAfter {
			t.Errorf("%q at %q: %v", after, date, got)
		}
	})
}

func FuzzAnErrorTextIsOneLine(f *testing.F) {
	for _, seed := range []string{`{"error":"a","detail":"b"}`, `{"error":{"message":"m"}}`, "a\nb\x1b[31m", "\xff", `{"error":"\u202e"}`, "", `{"error":7}`, "{"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		said := refusalText(raw)
		if len(said) > len("\uFFFD")*len(raw) || !utf8.ValidString(said) { // truncated later, after redaction
			t.Errorf("%d bytes, %q", len(said), said)
		}
		for _, r := range said {
			if unicode.In(r, unicode.Cc, unicode.Cf) {
				t.Errorf("%q", said)
			}
		}
	})
}
