-- +goose Up

-- The end of retention that was announced of an open letter, before which nothing takes
-- it for its age. A letter that was announced without an end is announced again.
ALTER TABLE recourse.desk ADD COLUMN ends_at timestamptz,
    ADD CONSTRAINT announced_end CHECK (ends_at IS NULL OR warned);

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
