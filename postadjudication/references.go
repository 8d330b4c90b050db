package postadjudication

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/references"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// TenantReferences keeps which values of a tenant are references of banks, and no numbers of cards.
type TenantReferences struct{ operator }

// Show returns the policy of references that is in force. Version is 0 if none was ever set, and Format is not 0 if a newer
// version of Recourse set it: then this process refuses whatever looks like a secret, with a *references.FormatError.
func (t TenantReferences) Show(ctx context.Context) (references.Version, error) {
	if t.tenant == "" {
		return references.Version{}, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	}
	return t.s.references.Newest(ctx, t.tenant)
}

// Set sets the whole policy of references, by its receipt, and returns it. This process applies it at once, others within a
// second. What was accepted before stays. To set the same policy again changes nothing. Of several concurrent changes one is
// made.
//
// Errors: *FieldError for bad input, *references.VersionError, *references.FormatError. After any other error it is unknown
// whether the policy was set: Show says so.
func (t TenantReferences) Set(ctx context.Context, q references.Change) (references.Version, error) {
	if err := errors.Join(validate.Change(t.tenant, t.actor, q.Reason), q.Policy.Validate()); err != nil {
		return references.Version{}, err
	}
	return t.s.references.Set(ctx, t.tenant, t.actor, t.s.now(), q)
}

// History returns at most limit versions of the policy of references in order, from their receipts, beginning after a version.
func (t TenantReferences) History(ctx context.Context, after int64, limit int) ([]references.Version, error) {
	switch {
	case t.tenant == "":
		return nil, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	case limit < 1:
		return nil, &refusal.FieldError{Field: "limit", Problem: "must be at least 1"}
	case after < 0:
		return nil, &refusal.FieldError{Field: "after", Problem: "must not be negative"}
	}
	return t.s.references.History(ctx, t.tenant, after, limit)
}
