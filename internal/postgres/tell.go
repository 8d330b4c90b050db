package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/receipts"
)

// tell writes a receipt into a case without runs, which it opens with the first one,
// by the statements that write all receipts. Whoever calls it holds a row that stands
// for the case, so that nobody else writes there meanwhile.
func tell(ctx context.Context, tx *sql.Tx, kase Case, draft receipts.Draft) error {
	before := kase
	var link []byte
	err := tx.QueryRowContext(ctx, `SELECT last_seq, last_link FROM recourse.cases WHERE id = $1 FOR NO KEY UPDATE`, kase.ID.String()).Scan(&before.Head.Seq, &link)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	copy(before.Head.Link[:], link)
	drafts := []receipts.Draft{draft}
	declare(ctx, drafts)
	row, err := seal(&Change{Before: &Snapshot{Case: before}, After: &Snapshot{Case: kase}, Drafts: drafts})
	if err != nil {
		return err
	}
	if row.opens() {
		o, err := applyOpens(ctx, tx, locking(openSQL), []*sealed{row})
		if err == nil && o[0].verdict != written {
			err = fmt.Errorf("the case of %s is there, but not what it is about", kase.Subject)
		}
		return err
	}
	v, err := applyMoves(ctx, tx, waiting(moveSQL), []*sealed{row})
	if err == nil && v[0] != written {
		err = fmt.Errorf("the case of %s was moved by somebody else", kase.Subject)
	}
	return err
}
