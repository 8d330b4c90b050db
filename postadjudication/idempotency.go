package postadjudication

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
)

const (
	// RequestRetention is how long the answer to a request with an idempotency key is kept.
	RequestRetention = 24 * time.Hour

	// requestTimeout is how long a request may take. After it, whoever carries it out counts as dead, and the
	// same request may be carried out again, also beside one that is only slow. What a request makes has its
	// ID, so that it is made once; what it changes is guarded by what was read.
	requestTimeout = 2 * time.Minute
)

// Errors of BeginRequest.
var (
	// ErrRequestMismatch: the idempotency key was used for another request.
	ErrRequestMismatch = errors.New("postadjudication: the idempotency key belongs to another request")
	// ErrRequestBusy: the same request is being worked on.
	ErrRequestBusy = errors.New("postadjudication: the request with this idempotency key is being worked on")
)

// StoredResponse is the response to a request.
type StoredResponse struct {
	Status  int
	Headers string
	Body    []byte
}

// IdempotentRequest is a request that the caller must carry out, and end by Answer, Drop or Interrupt.
type IdempotentRequest struct {
	journal *journal.Journal
	entry   journal.IdempotentRequest
	first   time.Time
}

// FirstBegan returns when the same request began first, if that was left without a response: by Interrupt, or
// by a process that died or took longer than two minutes. Else it returns zero.
func (r *IdempotentRequest) FirstBegan() time.Time { return r.first }

// ID identifies the request: it is the same each time that the request is carried out, and no other request
// has it, not even one with the same key a day later.
func (r *IdempotentRequest) ID() string {
	began := r.entry.Began
	if !r.first.IsZero() {
		began = r.first
	}
	h := sha256.New()
	for _, part := range []string{"recourse request id 1", r.entry.Tenant, r.entry.Key, strconv.FormatInt(began.UnixMicro(), 10)} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// BeginRequest commits a request under a tenant's idempotency key. digest covers
// everything that makes two requests the same. It returns the stored response if the same
// request was answered before, else the request to carry out.
//
// Errors: ErrRequestMismatch, ErrRequestBusy, and a *FieldError for bad input.
func (s *Service) BeginRequest(ctx context.Context, tenant, key string, digest [32]byte) (*StoredResponse, *IdempotentRequest, error) {
	now := s.now().Truncate(time.Microsecond) // as it is stored
	entry := journal.IdempotentRequest{Tenant: tenant, Key: key, Digest: digest, Token: uuid.New(), Began: now}
	if err := errors.Join(validate.KnownID("tenant", tenant, 128), validate.NewID("Idempotency-Key", key, 512)); err != nil {
		if err = s.allowStoredKey(ctx, entry, err); err != nil {
			return nil, nil, err
		}
	}
	before, begun, err := s.journal.Requests.Begin(ctx, entry, now.Add(-requestTimeout), now.Add(-RequestRetention))
	switch {
	case errors.Is(err, journal.ErrBusy):
		return nil, nil, ErrRequestBusy
	case err != nil:
		return nil, nil, err
	case begun:
		return nil, &IdempotentRequest{s.journal, entry, before.FirstBegan}, nil
	case before.Digest != digest:
		return nil, nil, ErrRequestMismatch
	case before.Status == 0:
		return nil, nil, ErrRequestBusy
	}
	return &StoredResponse{before.Status, before.Headers, before.Body}, nil, nil
}

// HasRequest reports whether a request of the last RequestRetention is stored under a tenant's idempotency key.
func (s *Service) HasRequest(ctx context.Context, tenant, key string) (bool, error) {
	return s.journal.Requests.Has(ctx, tenant, key, s.now().Add(-RequestRetention))
}

// Answer stores the response to the request.
func (r *IdempotentRequest) Answer(ctx context.Context, a StoredResponse) error {
	return r.journal.Requests.Answer(ctx, r.entry, journal.StoredRequest{Status: a.Status, Headers: a.Headers, Body: a.Body})
}

// Interrupt leaves the request without a response, since what it did is not known. Unlike after a death, the
// same request can be carried out again at once. It knows by FirstBegan that it is.
func (r *IdempotentRequest) Interrupt(ctx context.Context) error {
	return r.journal.Requests.Interrupt(ctx, r.entry, requestTimeout)
}

// Drop frees the key of a request that changed nothing.
func (r *IdempotentRequest) Drop(ctx context.Context) error {
	return r.journal.Requests.Drop(ctx, r.entry)
}

// allowStoredKey returns nil if a request is stored under an idempotency key that err refuses:
// an earlier version accepted that key, so the request is answered.
func (s *Service) allowStoredKey(ctx context.Context, q journal.IdempotentRequest, err error) error {
	if validate.Controls(q.Tenant) || validate.Controls(q.Key) {
		return err
	}
	stored, readErr := s.HasRequest(ctx, q.Tenant, q.Key)
	if readErr != nil || stored {
		return readErr
	}
	return err
}
