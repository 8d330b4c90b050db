package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/receipts"
)

// appendReceipt writes a receipt into a case without runs, which it opens with the first one,
// by the statements that write all receipts. Whoever calls it holds a row that stands
// for the case, so that nobody else writes there meanwhile.
func appendReceipt(ctx context.Context, tx *sql.Tx, opsCase Case, draft receipts.Draft) error {
	before := opsCase
	var link []byte
	err := tx.QueryRowContext(ctx, `SELECT last_seq, last_link FROM recourse.cases WHERE id = $1 FOR NO KEY UPDATE`, opsCase.ID.String()).Scan(&before.Head.Seq, &link)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	copy(before.Head.Link[:], link)
	drafts := []receipts.Draft{draft}
	markSelfDeclared(ctx, drafts)
	row, err := chain(&Change{Before: &Snapshot{Case: before}, After: &Snapshot{Case: opsCase}, Drafts: drafts})
	if err != nil {
		return err
	}
	if row.isOpening() {
		o, err := applyOpens(ctx, tx, withSubjectLock(openCaseSQL), []*chainedChange{row})
		if err == nil && o[0].result != applied {
			err = fmt.Errorf("the case of %s is there, but not what it is about", opsCase.Subject)
		}
		return err
	}
	v, err := applyTransitions(ctx, tx, withLockWait(transitionSQL), []*chainedChange{row})
	if err == nil && v[0] != applied {
		err = fmt.Errorf("the case of %s was moved by somebody else", opsCase.Subject)
	}
	return err
}
