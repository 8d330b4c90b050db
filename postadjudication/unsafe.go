package postadjudication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// problems is what is wrong with an input, each a *FieldError. What is unsafe is a secret, or a
// character of format: an earlier version may have accepted the input. What was accepted
// is never answered as refused, so that unsafe input is looked up first.
type problems struct {
	malformedIn, unsafeIn []error
	canonical             json.RawMessage // form of the payload, unless that is malformed
}

func (p *problems) malformed() error { return errors.Join(p.malformedIn...) }
func (p *problems) unsafe() error    { return errors.Join(p.unsafeIn...) }

func (p *problems) wrong(err error)  { p.malformedIn = append(p.malformedIn, err) }
func (p *problems) secret(err error) { p.unsafeIn = append(p.unsafeIn, err) }

// text refuses what is no plain text of so many bytes.
func (p *problems) text(field, value string, least, most int) {
	bound := fmt.Sprintf("at most %d", most)
	if least > 0 {
		bound = fmt.Sprintf("%d to %d", least, most)
	}
	err := &FieldError{Field: field, Problem: "must be " + bound + " bytes of plain text"}
	switch {
	case len(value) < least || len(value) > most || controls(value):
		p.wrong(err)
	case !plainText(value):
		p.secret(err)
	}
}

// payload refuses what is no payload of an adjudication. Of one that holds a secret nothing else
// is told: the name of a member may be the secret.
func (p *problems) payload(text json.RawMessage) {
	canonical, err := canonicalPayload(text)
	p.canonical = canonical
	if len(text) > MaxPayload || !json.Valid(text) {
		p.wrong(err)
		return
	}
	switch secret := noSecretIn(text); {
	case secret == nil:
		p.wrong(err)
	case err != nil:
		p.wrong(secret)
	default:
		p.secret(secret)
	}
}

// taskAgain answers an unsafe task. One whose retry key stands for a live task or for an open
// letter is answered as every task of that key; anything else is refused.
func (s *Service) taskAgain(ctx context.Context, t Task, unsafe error) (Submitted, error) {
	if t.RetryKey == "" {
		return Submitted{}, unsafe
	}
	seen, err := s.journal.SubjectSnapshot(ctx, t.Tenant, postgres.KindPlain, t.subject())
	switch {
	case errors.Is(err, ErrNotFound):
		return Submitted{}, unsafe
	case err != nil:
		return Submitted{}, err
	}
	standing := standingTask(&seen)
	if standing == Created {
		return Submitted{}, unsafe
	}
	return s.submitted(&seen, refusal(standing))
}

// unsafeKey returns nil where a request is stored under an idempotency key that err refuses. It
// was entered by an earlier version, and is answered.
func (s *Service) unsafeKey(ctx context.Context, q postgres.Request, err error) error {
	if controls(q.Tenant) || controls(q.Key) {
		return err
	}
	stored, notRead := s.journal.HasRequest(ctx, q.Tenant, q.Key, q.Began.Add(-RequestsKept))
	if notRead != nil || stored {
		return notRead
	}
	return err
}
