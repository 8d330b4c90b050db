package validate

import (
	"errors"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/internal/strictjson"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Unambiguous refuses a text that JSON parsers read differently, or that spells a member of v in another case.
func Unambiguous(what string, text []byte, v any) error {
	err := strictjson.CheckFor(text, v)
	var wrong *strictjson.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &wrong):
		return err
	case wrong.Field == "":
		return &refusal.FieldError{Field: what, Problem: wrong.Problem}
	}
	return &refusal.FieldError{Field: redact.Text(wrong.Field), Problem: wrong.Problem}
}
