package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// IdempotentRequest is an API request with an idempotency key.
type IdempotentRequest struct {
	Tenant string
	Key    string
	Digest [32]byte  // of everything that identifies the request
	Token  uuid.UUID // of the call of Begin
	Began  time.Time
}

// StoredRequest is a request as it is stored, with its response. Status is 0 while there is none.
type StoredRequest struct {
	Digest  [32]byte
	Status  int
	Headers string
	Body    []byte
	// FirstBegan is when a request with the key began first; zero if that is this one.
	FirstBegan time.Time
}

// expiredPerRequest is the number of expired requests that each new one deletes.
const expiredPerRequest = 20

// beginRequestSQL inserts a request if its key is free, if the row of its key has expired,
// or if the same request began before $6 and has no response. It locks that one row and no
// other.
const beginRequestSQL = `
INSERT INTO recourse.requests AS r (tenant, key, digest, token, began, first_began) VALUES ($1, $2, $3, $4, $5, $5)
ON CONFLICT (tenant, key) DO UPDATE SET digest = excluded.digest, token = excluded.token, began = excluded.began, status = NULL, headers = '', body = NULL,
  first_began = CASE WHEN r.status IS NULL AND r.digest = excluded.digest AND r.began >= $7 THEN coalesce(r.first_began, r.began) ELSE excluded.began END
WHERE r.began < $7 OR r.status IS NULL AND r.began < $6 AND r.digest = excluded.digest
RETURNING CASE WHEN first_began < began THEN first_began END`

// deleteExpiredSQL deletes a few expired requests. It is a separate statement, executed
// afterwards, and skips locked rows: otherwise two requests whose keys have both expired
// could each hold the key that the other waits for.
const deleteExpiredSQL = `
DELETE FROM recourse.requests WHERE (tenant, key) IN (SELECT tenant, key FROM recourse.requests WHERE began < $1 ORDER BY began LIMIT $2 FOR UPDATE SKIP LOCKED)`

// IdempotentRequests keeps responses under their idempotency keys.
type IdempotentRequests struct {
	*shared
}

// Begin stores a request. begun means that the caller handles it. Otherwise before
// is the request with the same key, with its response if there is one. A request that began
// before abandonedBefore without a response is taken over; one from before expiredBefore is
// replaced.
func (r *IdempotentRequests) Begin(ctx context.Context, q IdempotentRequest, abandonedBefore, expiredBefore time.Time) (before StoredRequest, begun bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var first sql.NullTime
	failpoint.Hit(failpoint.JournalBefore, failpoint.Request)
	err = r.batchDB.QueryRowContext(ctx, beginRequestSQL, q.Tenant, q.Key, q.Digest[:], q.Token, q.Began, abandonedBefore, expiredBefore).Scan(&first)
	failpoint.Hit(failpoint.JournalAfter, failpoint.Request)
	switch {
	case err == nil:
		before.FirstBegan = first.Time
		if _, err := pg.Exec(ctx, r.batchDB, failpoint.Request, deleteExpiredSQL, expiredBefore, expiredPerRequest); err != nil {
			r.Warn(fmt.Errorf("journal: delete expired requests: %w", err))
		}
		return before, true, nil
	case !errors.Is(err, sql.ErrNoRows):
		return before, false, busyOrWrapped(err)
	}
	before, holder, err := r.selectRequest(ctx, q)
	return before, holder == q.Token, err // its own token: the row was inserted, but the answer to that was lost
}

// Has reports whether a key is in use by a request that has not expired.
func (r *IdempotentRequests) Has(ctx context.Context, tenant, key string, expiredBefore time.Time) (has bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	err = r.readDB.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.requests WHERE tenant = $1 AND key = $2 AND began >= $3)`, tenant, key, expiredBefore).Scan(&has)
	if err != nil {
		return false, pg.Wrap(err)
	}
	return has, nil
}

// selectRequest reads the request of a key, and the token of its handler.
func (r *IdempotentRequests) selectRequest(ctx context.Context, q IdempotentRequest) (before StoredRequest, holder uuid.UUID, err error) {
	var digest []byte
	var status sql.NullInt64
	var first sql.NullTime
	err = r.readDB.QueryRowContext(ctx, `SELECT digest, token, status, headers, body, CASE WHEN first_began < began THEN first_began END FROM recourse.requests WHERE tenant = $1 AND key = $2`, q.Tenant, q.Key).
		Scan(&digest, &holder, &status, &before.Headers, &before.Body, &first)
	if errors.Is(err, sql.ErrNoRows) {
		return before, holder, ErrBusy // it was deleted just now
	}
	if err != nil {
		return before, holder, pg.Wrap(err)
	}
	copy(before.Digest[:], digest)
	before.Status, before.FirstBegan = int(status.Int64), first.Time
	return before, holder, nil
}

// Answer stores the response of a request, unless another handler took it over.
func (r *IdempotentRequests) Answer(ctx context.Context, q IdempotentRequest, response StoredRequest) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.StatementTimeout)
	defer cancel()
	_, err := pg.Exec(ctx, r.batchDB, failpoint.Request, `UPDATE recourse.requests SET status = $4, headers = $5, body = $6 WHERE tenant = $1 AND key = $2 AND token = $3`,
		q.Tenant, q.Key, q.Token, response.Status, response.Headers, append([]byte{}, response.Body...))
	return busyOrWrapped(err)
}

// Interrupt leaves a request without a response, so that Begin gives it to the next caller at once, and says
// when it began first. timeout is how long a request without a response keeps others waiting.
func (r *IdempotentRequests) Interrupt(ctx context.Context, q IdempotentRequest, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.StatementTimeout)
	defer cancel()
	_, err := pg.Exec(ctx, r.batchDB, failpoint.Request, `UPDATE recourse.requests SET first_began = coalesce(first_began, began), began = began - $4 * interval '1 microsecond'
		WHERE tenant = $1 AND key = $2 AND token = $3 AND status IS NULL`, q.Tenant, q.Key, q.Token, (timeout + time.Millisecond).Microseconds())
	return busyOrWrapped(err)
}

// Drop deletes a request that has no response, so that its key is free again. The request must have changed
// nothing: where that is not known, Interrupt keeps the key.
func (r *IdempotentRequests) Drop(ctx context.Context, q IdempotentRequest) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.StatementTimeout)
	defer cancel()
	_, err := pg.Exec(ctx, r.batchDB, failpoint.Request, `DELETE FROM recourse.requests WHERE tenant = $1 AND key = $2 AND token = $3 AND status IS NULL`, q.Tenant, q.Key, q.Token)
	return busyOrWrapped(err)
}
