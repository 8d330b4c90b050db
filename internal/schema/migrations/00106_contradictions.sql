-- +goose Up

-- Read by the gauge of contradictions, and for the status of a case.
CREATE INDEX receipts_contradictions ON recourse.receipts (case_id, seq) WHERE subtype = 'contradicted';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
