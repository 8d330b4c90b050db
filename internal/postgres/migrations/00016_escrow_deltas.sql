-- +goose Up

-- What a move of a case adds to the committed sum of its escrow, or frees of it: inserted
-- with the move, which so never waits for the escrow's row. Whoever locks that row folds:
-- deletes its deltas and adds to the row what that DELETE returned. A delta is named by
-- the first receipt of its move. No foreign key: it would lock the escrow's row.
CREATE TABLE recourse.escrow_deltas (
    escrow_id bigint NOT NULL,
    case_id   uuid   NOT NULL,
    seq       bigint NOT NULL CHECK (seq >= 1),
    delta     bigint NOT NULL CHECK (delta <> 0),
    PRIMARY KEY (escrow_id, case_id, seq)
);

-- What an escrow has committed at this moment: its row and its open deltas together.
CREATE VIEW recourse.escrow_sums AS
SELECT e.id, e.tenant, e.reference, e.currency, e.held, (e.committed + d.open)::bigint AS committed, d.open, e.breached
FROM recourse.escrows e, LATERAL (SELECT coalesce(sum(x.delta), 0)::bigint AS open FROM recourse.escrow_deltas x WHERE x.escrow_id = e.id) d;

-- The alarms: payments beyond their adjudication, and escrows that committed more than they hold.
CREATE INDEX receipts_breaches ON recourse.receipts (case_id, seq) WHERE subtype = 'conservation-breach';
CREATE INDEX escrows_breached  ON recourse.escrows (id) WHERE breached > 0;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
