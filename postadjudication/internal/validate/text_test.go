package validate_test

import (
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
