-- +goose Up

-- By how much the clock on the wall of a process differs from the database's, as it
-- measured with its last beat; null when it did not, as a process of an older program or of
-- a simulation. One whose clock alone is off claims nothing.
ALTER TABLE recourse.sessions ADD COLUMN clock_offset_us bigint;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
