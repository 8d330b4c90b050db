package escrowhttp

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication"
)

// A card number anywhere in what an escrow service says of a refusal is taken out whole,
// also where evidence cuts the text.
func TestAnErrorTextIsNotCutBeforeItIsRedacted(t *testing.T) {
	t.Parallel()
	const card = "4111111111111111"
	digits := regexp.MustCompile(`[0-9]{6,}`)
	for _, form := range []string{`%s`, `{"error":"declined","detail":"%s"}`, `{"error":{"message":"%s"}}`} {
		for _, at := range []int{490, 500, 505, 511, 1020, 2040, 2047, 8000} {
			text := strings.Repeat("x ", at/2) + "card " + card + " " + strings.Repeat("y ", 500)
			kept := redact.Text(errorText([]byte(fmt.Sprintf(form, text))))
			if found := digits.FindString(kept); found != "" || !strings.Contains(kept, "y y") {
				t.Errorf("%s at %d: %q is left of the card, in %d bytes", form, at, found, len(kept))
			}
		}
	}
}

// Of a refusal whose text does not arrive whole, no number is kept that may be the beginning of a card.
func TestATruncatedErrorTextKeepsNoHalfOfASecret(t *testing.T) {
	t.Parallel()
	text := "declined by the issuer: 4111111111111111"
	for name, from := range map[string]string{
		"longer than MaxBody": serveAnswer(t, 422, map[string]string{"Content-Type": "text/plain"}, text),
		"broken off": serveConn(t, func(c net.Conn) {
			readRequest(bufio.NewReader(c))
			fmt.Fprintf(c, "HTTP/1.1 422 Unprocessable\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(text), text[:len(text)-1])
		}),
	} {
		a := newExecutor(t, Config{BaseURL: from, MaxBody: int64(len(text) - 1)}).Execute(withLimit(t), newCall())
		if kept := redact.Text(a.Message); a.Class != postadjudication.NotExecuted || strings.Contains(kept, "4111") || !strings.Contains(kept, "declined by the issuer") {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
