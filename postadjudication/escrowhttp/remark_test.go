package escrowhttp

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/redact"
)

// A card number anywhere in what an escrow service says of a refusal is taken out whole,
// also where evidence cuts the text.
func TestARemarkIsNotCutBeforeItsSecretsAreTakenOut(t *testing.T) {
	t.Parallel()
	const card = "4111111111111111"
	digits := regexp.MustCompile(`[0-9]{6,}`)
	for _, form := range []string{`%s`, `{"error":"declined","detail":"%s"}`, `{"error":{"message":"%s"}}`} {
		for _, at := range []int{490, 500, 505, 511, 1020, 2040, 2047, 8000} {
			text := strings.Repeat("x ", at/2) + "card " + card + " " + strings.Repeat("y ", 500)
			kept := redact.Text(remark([]byte(fmt.Sprintf(form, text))))
			if found := digits.FindString(kept); found != "" || !strings.Contains(kept, "y y") {
				t.Errorf("%s at %d: %q is left of the card, in %d bytes", form, at, found, len(kept))
			}
		}
	}
}
