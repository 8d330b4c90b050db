package referencepolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/references"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Recheck checks a value again that looks like a secret: an id by its field, or the text of a payload as the field
// references.PayloadPrefix. problem refuses it, unless the policy of the tenant takes what it holds; err is that of reading the
// policy.
func (s *Store) Recheck(ctx context.Context, tenant, field, value string) (problem, err error) {
	if field == references.PayloadPrefix {
		err = s.CheckPayload(ctx, tenant, json.RawMessage(value))
	} else if problem = validate.NoSecret(field, value); problem == nil || !slices.Contains(references.Fields(), field) {
		return problem, nil
	} else {
		var policy references.Matcher
		if policy, err = s.policyOf(ctx, tenant); err == nil {
			return checkReference(policy, field, field, value, problem), nil
		}
	}
	if errors.As(err, new(*refusal.FieldError)) {
		return err, nil
	}
	return nil, err
}

// Stated returns the form in which a reference is kept that a person states: as it is if the policy takes it, else as
// validate.Reference does. It refuses a secret, and a reference of the policy in another than its canonical spelling: a
// reference that is spelled in two ways would be two.
func (s *Store) Stated(ctx context.Context, tenant, name, reference string) (string, error) {
	secret, kept := validate.NoSecret(name, reference), validate.Reference(reference)
	if secret == nil && kept == reference && !references.MaySpell(reference) {
		return reference, nil
	}
	policy, err := s.policyOf(ctx, tenant)
	if err != nil {
		return "", err
	}
	if _, matches := policy.Match(references.FieldReference, reference); !matches || redact.HoldsMoreThanCards(reference) {
		return kept, secret
	}
	return reference, checkReference(policy, references.FieldReference, name, reference, nil)
}

// checkReference refuses a value that the policy does not take as it stands, by the refusal of a secret or of its spelling.
func checkReference(policy references.Matcher, field, name, value string, secret error) error {
	canonical, matches := policy.Match(field, value)
	switch {
	case !matches, redact.HoldsMoreThanCards(value):
		return secret
	case canonical != value:
		return &refusal.FieldError{Field: name, Problem: "is a reference of a bank in another spelling than its canonical one: a KID, OCR or FIK is its digits alone, and RF is in capitals without blanks"}
	}
	return nil
}

// Answered returns the form in which the reference of a payment is kept that an escrow service or a worker states: in its
// canonical spelling if the policy of the tenant takes it, else as validate.Reference does.
func (s *Store) Answered(ctx context.Context, tenant, reference string) (string, error) {
	kept := validate.Reference(reference)
	if kept == reference && !references.MaySpell(reference) {
		return kept, nil
	}
	canonical, taken, err := s.Take(ctx, tenant, reference)
	switch {
	case err != nil:
		return "", err
	case taken:
		return canonical, nil
	}
	return kept, nil
}

// Take reports whether the policy of the tenant takes the reference of a payment, in any spelling, and returns the
// canonical one.
func (s *Store) Take(ctx context.Context, tenant, reference string) (canonical string, taken bool, err error) {
	policy, err := s.policyOf(ctx, tenant)
	if err != nil {
		return "", false, err
	}
	canonical, matches := policy.Match(references.FieldReference, reference)
	return canonical, matches && !redact.HoldsMoreThanCards(reference), nil
}

// CheckPayload refuses a payload that holds a secret, and names the member. A member that the policy names may hold a
// reference that the policy takes.
func (s *Store) CheckPayload(ctx context.Context, tenant string, payload json.RawMessage) error {
	if validate.NoSecretIn(payload) == nil {
		return nil
	}
	policy, err := s.policyOf(ctx, tenant)
	if err != nil {
		return err
	}
	field, found := redact.FindUnless(payload, func(pointer, value string) bool {
		canonical, matches := policy.Match(references.PayloadPrefix+pointer, value)
		return matches && canonical == value
	})
	if !found {
		return nil
	}
	return validate.SecretIn(field)
}

// Unreadable returns an error of reading the policy as one that says that the run can't be written now: by a program
// that can read the policy it can. Any other error it returns as it is.
func Unreadable(err error) error {
	var newer *references.FormatError
	if errors.As(err, &newer) {
		return fmt.Errorf("%w: %w", refusal.ErrUnreadable, err)
	}
	return err
}
