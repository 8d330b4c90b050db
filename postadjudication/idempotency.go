package postadjudication

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/postgres"
)

const (
	// RequestRetention is how long the answer to a request with an idempotency key is kept.
	RequestRetention = 24 * time.Hour

	// requestTimeout is how long a request may take; past it, whoever worked on it is
	// taken for dead. Nothing is lost by doing it again: every action guards itself.
	requestTimeout = 2 * time.Minute
)

// Errors of BeginRequest.
var (
	// ErrRequestMismatch: the idempotency key was used for another request.
	ErrRequestMismatch = errors.New("postadjudication: the idempotency key belongs to another request")
	// ErrRequestBusy: the same request is being worked on.
	ErrRequestBusy = errors.New("postadjudication: the request with this idempotency key is being worked on")
)

// StoredResponse is what a request was answered.
type StoredResponse struct {
	Status  int
	Headers string
	Body    []byte
}

// IdempotentRequest is one that the caller is to work on, and must end by Answer or Drop.
type IdempotentRequest struct {
	journal *postgres.Journal
	entry   postgres.Request
}

// BeginRequest enters a request under a tenant's idempotency key. digest covers all
// that makes it the same request. It gives the answer that the same request was given
// before, or else the request to work on.
func (s *Service) BeginRequest(ctx context.Context, tenant, key string, digest [32]byte) (*StoredResponse, *IdempotentRequest, error) {
	now := s.now()
	entry := postgres.Request{Tenant: tenant, Key: key, Digest: digest, Token: uuid.New(), Began: now}
	if err := errors.Join(requireText("tenant", tenant, 128), requireIdentifier("Idempotency-Key", key, 512)); err != nil {
		if err = s.allowStoredKey(ctx, entry, err); err != nil {
			return nil, nil, err
		}
	}
	before, begun, err := s.journal.BeginRequest(ctx, entry, now.Add(-requestTimeout), now.Add(-RequestRetention))
	switch {
	case errors.Is(err, postgres.ErrBusy):
		return nil, nil, ErrRequestBusy
	case err != nil:
		return nil, nil, err
	case begun:
		return nil, &IdempotentRequest{s.journal, entry}, nil
	case before.Digest != digest:
		return nil, nil, ErrRequestMismatch
	case before.Status == 0:
		return nil, nil, ErrRequestBusy
	}
	return &StoredResponse{before.Status, before.Headers, before.Body}, nil, nil
}

// Answer keeps what the request was answered.
func (r *IdempotentRequest) Answer(ctx context.Context, a StoredResponse) error {
	return r.journal.AnswerRequest(ctx, r.entry, postgres.Response{Status: a.Status, Headers: a.Headers, Body: a.Body})
}

// Drop frees the key of a request that changed nothing.
func (r *IdempotentRequest) Drop(ctx context.Context) error {
	return r.journal.DropRequest(ctx, r.entry)
}
