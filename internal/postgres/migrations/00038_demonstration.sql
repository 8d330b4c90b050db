-- +goose Up

-- A database whose escrow service pays nothing real, for good. It is said with the row itself,
-- by the first process that executes: a database that has executed anything else never is one.
ALTER TABLE recourse.installation ADD COLUMN demonstration bool NOT NULL DEFAULT false;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
