-- +goose Up

-- clock_unchanged_since is what time that was recorded before is counted from: heartbeats write it.
ALTER TABLE recourse.installation ADD COLUMN clock_unchanged_since timestamptz;
COMMENT ON COLUMN recourse.installation.clock_unchanged_since IS 'what the clock showed when it was last found changed by over a second, or when heartbeats followed it again: how long ago an earlier time was is known only since then';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
