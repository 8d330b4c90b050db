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
	malformedErrs, unsafeErrs []error
	canonical                 json.RawMessage // form of the payload, unless that is malformed
}

func (p *problems) malformed() error { return errors.Join(p.malformedErrs...) }
func (p *problems) unsafe() error    { return errors.Join(p.unsafeErrs...) }

func (p *problems) addMalformed(err error) { p.malformedErrs = append(p.malformedErrs, err) }
func (p *problems) addUnsafe(err error)    { p.unsafeErrs = append(p.unsafeErrs, err) }

// checkText refuses what is no plain text of so many bytes.
func (p *problems) checkText(field, value string, least, most int) {
	bound := fmt.Sprintf("at most %d", most)
	if least > 0 {
		bound = fmt.Sprintf("%d to %d", least, most)
	}
	err := &FieldError{Field: field, Problem: "must be " + bound + " bytes of plain text"}
	switch {
	case len(value) < least || len(value) > most || hasControls(value):
		p.addMalformed(err)
	case !isPlainText(value):
		p.addUnsafe(err)
	}
}

// checkPayload refuses what is no payload of an adjudication. Of one that holds a secret nothing else
// is told: the name of a member may be the secret.
func (p *problems) checkPayload(text json.RawMessage) {
	canonical, err := canonicalPayload(text)
	p.canonical = canonical
	if len(text) > MaxPayload || !json.Valid(text) {
		p.addMalformed(err)
		return
	}
	switch secret := rejectSecretIn(text); {
	case secret == nil:
		p.addMalformed(err)
	case err != nil:
		p.addMalformed(secret)
	default:
		p.addUnsafe(secret)
	}
}

// answerUnsafeTask answers an unsafe task. One whose retry key stands for a live task or for an open
// letter is answered as every task of that key; anything else is refused.
func (s *Service) answerUnsafeTask(ctx context.Context, t Task, unsafe error) (Submitted, error) {
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
	reply := replyToTask(&seen)
	if reply == Created {
		return Submitted{}, unsafe
	}
	return s.submitted(&seen, replyError(reply))
}

// allowStoredKey returns nil where a request is stored under an idempotency key that err refuses. It
// was entered by an earlier version, and is answered.
func (s *Service) allowStoredKey(ctx context.Context, q postgres.Request, err error) error {
	if hasControls(q.Tenant) || hasControls(q.Key) {
		return err
	}
	stored, readErr := s.journal.HasRequest(ctx, q.Tenant, q.Key, q.Began.Add(-RequestRetention))
	if readErr != nil || stored {
		return readErr
	}
	return err
}
