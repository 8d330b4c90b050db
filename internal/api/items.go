package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/recourse-dev/recourse/internal/cpulimit"
	"github.com/recourse-dev/recourse/internal/intake"
)

// Bytes of batches that are worked on at once.
const (
	maxProcessBatchBytes = 48 << 20
	maxTenantBatchBytes  = 16 << 20
)

// batchRead is how many bytes of a batch are read at once: each read gives the processor away.
const batchRead = 64 << 10

type itemsKey struct{}

// batchItems are the items of a batch, as they were written.
func batchItems(ctx context.Context) []json.RawMessage {
	items, _ := ctx.Value(itemsKey{}).([]json.RawMessage)
	return items
}

// readBatch reads a batch item by item, and calls next with them. It takes room for the
// length that the request states, or the longest one.
func (a *API) readBatch(w http.ResponseWriter, r *http.Request, c Caller, next func(*http.Request)) {
	if err := checkContentType(r); err != nil {
		a.writeProblem(w, err)
		return
	}
	length := r.ContentLength
	if length < 0 || length > maxBatchBytes {
		length = maxBatchBytes
	}
	release, exceeded := a.batchQuota.acquire(c, length)
	if exceeded != scopeNone {
		a.writeProblem(w, newProblem(http.StatusTooManyRequests, "too_many_batches", "batches of %d MiB of a tenant and %d MiB of a process are worked on at once: hand over smaller ones, or one after the other", maxTenantBatchBytes>>20, maxProcessBatchBytes>>20).withRetryAfter(1))
		return
	}
	defer release()
	var items []json.RawMessage
	var err error
	if waited := cpulimit.OfProcess().DoReading(r.Context(), c.Tenant, http.MaxBytesReader(w, r.Body, maxBatchBytes), func(in io.Reader) {
		items, err = intake.Batch(bufio.NewReaderSize(in, batchRead), "adjudications", maxBatchItems, maxItemBytes)
	}); waited != nil {
		err = waited
	}
	var refused *intake.BatchError
	switch {
	case errors.As(err, &refused) && refused.Malformed:
		a.writeProblem(w, newProblem(http.StatusBadRequest, "malformed", "the body can't be read").withField(refused.Field, refused.Problem))
	case errors.As(err, &refused):
		a.writeProblem(w, newProblem(http.StatusUnprocessableEntity, "invalid", "the batch can't be taken").withField(refused.Field, refused.Problem))
	case err != nil:
		a.writeProblem(w, unreadBodyProblem(err, maxBatchBytes))
	default:
		next(r.WithContext(context.WithValue(r.Context(), itemsKey{}, items)))
	}
}
