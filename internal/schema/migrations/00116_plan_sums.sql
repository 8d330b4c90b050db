-- +goose Up

-- A sum of the amounts of a plan may be larger than the largest bigint. The table has a few rows for each plan.
ALTER TABLE recourse.bulk_counts ALTER COLUMN amount TYPE numeric;
COMMENT ON COLUMN recourse.bulk_counts.amount IS 'the sum of the amounts of these items, in minor units';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
