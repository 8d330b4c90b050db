-- +goose Up

-- returned is what came back of released and refunded. It is written with a row of returns, and no
-- other statement names it, so that the statements that settle do not grow.
ALTER TABLE recourse.cases ADD COLUMN returned bigint NOT NULL DEFAULT 0;
ALTER TABLE recourse.cases ADD CONSTRAINT returned_was_paid CHECK (returned BETWEEN 0 AND released + refunded) NOT VALID;

-- reference is that of the bank or escrow service: it identifies the return, so that each is
-- recorded once, whoever hands it over how often. The case and seq are those of its receipt.
CREATE TABLE recourse.returns (
    tenant    text   NOT NULL CHECK (tenant <> ''),
    reference text   NOT NULL CHECK (reference <> ''),
    case_id   uuid   NOT NULL,
    seq       bigint NOT NULL CHECK (seq >= 1),
    run_id    uuid   NOT NULL,
    amount    bigint NOT NULL CHECK (amount >= 1),
    PRIMARY KEY (tenant, reference)
);
COMMENT ON TABLE recourse.returns IS 'One row per payment, or part of one, that came back';
-- Read by the audit of a case.
CREATE INDEX returns_case ON recourse.returns (case_id);

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
