package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

// Request is a request that named an idempotency key.
type Request struct {
	Tenant string
	Key    string
	Digest [32]byte  // of everything that makes it the same request
	Token  uuid.UUID // of whoever works on it
	Began  time.Time
}

// Response is what a request was answered. Status 0: nothing yet.
type Response struct {
	Digest  [32]byte
	Status  int
	Headers string
	Body    []byte
}

// expiredPerRequest is how many outdated requests are forgotten by each that begins.
const expiredPerRequest = 20

// beginRequestSQL enters a request whose key is free, or whose holder is outdated or has
// given no answer since before $6. It locks that one row and no other.
const beginRequestSQL = `
INSERT INTO recourse.requests AS r (tenant, key, digest, token, began) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, key) DO UPDATE SET digest = excluded.digest, token = excluded.token, began = excluded.began, status = NULL, headers = '', body = NULL
WHERE r.began < $7 OR r.status IS NULL AND r.began < $6 AND r.digest = excluded.digest`

// deleteExpiredSQL forgets a few outdated requests. It is a statement of its own, after
// the other, and waits for no lock: two requests whose keys are both outdated would else
// each hold the key that the other one waits for.
const deleteExpiredSQL = `
DELETE FROM recourse.requests WHERE (tenant, key) IN (SELECT tenant, key FROM recourse.requests WHERE began < $1 ORDER BY began LIMIT $2 FOR UPDATE SKIP LOCKED)`

// BeginRequest enters a request. begun means that the caller is to work on it; else
// before is the request that has its key, with its answer if there is one. A request
// that was begun before abandoned and never answered is taken over, and one from
// before outdated is forgotten.
func (j *Journal) BeginRequest(ctx context.Context, q Request, abandonedBefore, expiredBefore time.Time) (before Response, begun bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	res, err := execWithFailpoints(ctx, j.batchDB, failpoint.Request, beginRequestSQL, q.Tenant, q.Key, q.Digest[:], q.Token, q.Began, abandonedBefore, expiredBefore)
	if err != nil {
		return before, false, busyOrUnavailable(err)
	}
	switch n, err := res.RowsAffected(); {
	case err != nil:
		return before, false, err
	case n == 1:
		if _, err := execWithFailpoints(ctx, j.batchDB, failpoint.Request, deleteExpiredSQL, expiredBefore, expiredPerRequest); err != nil {
			j.Warn(fmt.Errorf("postgres: outdated requests are not forgotten yet: %w", err))
		}
		return before, true, nil
	}
	before, holder, err := j.selectRequest(ctx, q)
	return before, holder == q.Token, err // its own: it was entered, and the answer to that was lost
}

// HasRequest reports whether a request has a key, and is not from before outdated.
func (j *Journal) HasRequest(ctx context.Context, tenant, key string, expiredBefore time.Time) (has bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = j.readDB.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.requests WHERE tenant = $1 AND key = $2 AND began >= $3)`, tenant, key, expiredBefore).Scan(&has)
	if err != nil {
		return false, unavailable(err)
	}
	return has, nil
}

// selectRequest reads the request that has a key, and who works on it.
func (j *Journal) selectRequest(ctx context.Context, q Request) (before Response, holder uuid.UUID, err error) {
	var digest []byte
	var status sql.NullInt64
	err = j.readDB.QueryRowContext(ctx, `SELECT digest, token, status, headers, body FROM recourse.requests WHERE tenant = $1 AND key = $2`, q.Tenant, q.Key).
		Scan(&digest, &holder, &status, &before.Headers, &before.Body)
	if errors.Is(err, sql.ErrNoRows) {
		return before, holder, ErrBusy // it was given up just now
	}
	if err != nil {
		return before, holder, unavailable(err)
	}
	copy(before.Digest[:], digest)
	before.Status = int(status.Int64)
	return before, holder, nil
}

// AnswerRequest keeps the answer of a request, unless somebody took it over.
func (j *Journal) AnswerRequest(ctx context.Context, q Request, r Response) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	_, err := execWithFailpoints(ctx, j.batchDB, failpoint.Request, `UPDATE recourse.requests SET status = $4, headers = $5, body = $6 WHERE tenant = $1 AND key = $2 AND token = $3`,
		q.Tenant, q.Key, q.Token, r.Status, r.Headers, append([]byte{}, r.Body...))
	if err != nil {
		return busyOrUnavailable(err)
	}
	return nil
}

// DropRequest forgets a request that changed nothing, so that its key is free again.
func (j *Journal) DropRequest(ctx context.Context, q Request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	_, err := execWithFailpoints(ctx, j.batchDB, failpoint.Request, `DELETE FROM recourse.requests WHERE tenant = $1 AND key = $2 AND token = $3 AND status IS NULL`, q.Tenant, q.Key, q.Token)
	if err != nil {
		return busyOrUnavailable(err)
	}
	return nil
}
