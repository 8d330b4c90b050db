package validate_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
)

func TestPlainTextHasNoCharacterThatMisleadsAReader(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "user:ada", "die Straße, 日本, é"} {
		if !validate.PlainText(text) {
			t.Errorf("%q is refused", text)
		}
	}
	for _, text := range []string{"\x1b[31m", "user:\u009b31mada", "\u202euser:ada", "user:ada\u200b", "\u2066x", "a\nb", "\ufeffx", "\u00ad", "\xff"} {
		if validate.PlainText(text) {
			t.Errorf("%q is accepted", text)
		}
	}
}

// A reference of an escrow service is kept whole, or by its digest: two long ones stay apart, and a person may state what is kept.
func TestALongReferenceIsKeptByItsDigest(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("r", validate.MaxReference+1)
	kept := map[string]bool{}
	for _, s := range []string{"pay_1", strings.Repeat("r", validate.MaxReference), strings.Repeat("é", validate.MaxReference/2+1), long, long + "x"} {
		got := validate.Reference(s)
		if (got == s) != (len(s) <= validate.MaxReference) || kept[got] || validate.Reference(got) != got {
			t.Errorf("%d bytes are kept as %q", len(s), got)
		}
		if err := validate.Identifier("reference", got, validate.MaxReference); err != nil {
			t.Errorf("%q can't be stated: %v", got, err)
		}
		kept[got] = true
	}
	if got := validate.Reference("PAY-4012888888881881"); got != "PAY-[card]" {
		t.Errorf("the number of a card is kept as %q", got)
	}
}
