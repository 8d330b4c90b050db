package validate_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

func TestAnIDHasOneSpelling(t *testing.T) {
	t.Parallel()
	for _, s := range testkit.Spellings() {
		if err := validate.KnownID("id", s.ID, 128); err != nil {
			t.Errorf("%+q can't be read: %v", s.ID, err)
		}
		err := validate.NewID("id", s.ID, 128)
		var refused *refusal.FieldError
		switch {
		case s.Wrong == "" && err != nil:
			t.Errorf("%+q is refused: %v", s.ID, err)
		case s.Wrong != "" && (!errors.As(err, &refused) || !strings.HasPrefix(refused.Problem, "has "+s.Wrong) || !strings.Contains(refused.Problem, "; an id is in Unicode form NFC")):
			t.Errorf("%+q: %v, want %s", s.ID, err, s.Wrong)
		}
	}
}

// What is accepted stays as it is in the form NFC, and has no other blank than U+0020 between other characters.
func FuzzAnAcceptedIDIsNormal(f *testing.F) {
	for _, s := range testkit.Spellings() {
		f.Add(s.ID)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if validate.NewID("id", id, 128) == nil && (norm.NFC.String(id) != id || strings.TrimSpace(id) != id || id == "") {
			t.Errorf("%+q is accepted", id)
		}
	})
}

func TestAnIDThatNoVersionAcceptedCantBeRead(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "a\x00b", "a\tb", "a\u0085b", "a\xff", "\xed\xa0\x80", strings.Repeat("a", 129)} {
		if validate.KnownID("id", id, 128) == nil || validate.NewID("id", id, 128) == nil {
			t.Errorf("%+q is accepted", id)
		}
		if err := validate.IDForm("id", id); err != nil {
			t.Errorf("%+q is refused twice: %v", id, err)
		}
	}
}
