-- +goose Up

-- A case of which nothing came back has no value instead of 0, which takes no room in its row: almost all
-- cases are such, and more of their updates find room beside the row.
ALTER TABLE recourse.cases ALTER COLUMN returned DROP NOT NULL, ALTER COLUMN returned DROP DEFAULT;
COMMENT ON COLUMN recourse.cases.returned IS 'what came back of released and refunded, in minor units; NULL: nothing';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
