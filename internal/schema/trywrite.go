package schema

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// tryTimeout bounds TryWrite: a server that keeps no more would have it wait without end.
const tryTimeout = 15 * time.Second

// tryWriteSQL appends the first receipt of a case that does not exist, and needs the right to move the head of one.
const tryWriteSQL = `WITH receipt AS (
  INSERT INTO recourse.receipts (case_id, seq, tenant, source, subtype, actor, at, body, link)
  VALUES (gen_random_uuid(), 1, 'recourse', 'operations', 'access-refused', 'system:doctor', now(), '{}', sha256('')))
UPDATE recourse.cases SET last_seq = last_seq WHERE false`

// TryWrite writes what each change of a case writes, as the role of the connections, and rolls it back. Its error is that of
// the server, such as of one that is read-only, or whose disk is full where the write needed room.
func TryWrite(ctx context.Context, db *sql.DB) (err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if back := tx.Rollback(); back != nil && !errors.Is(back, sql.ErrTxDone) {
			err = errors.Join(err, back)
		}
	}()
	_, err = tx.ExecContext(ctx, tryWriteSQL)
	return err
}
