-- +goose Up

-- A cancel of a fork leaves reserved what its dead letter had reserved. A program before this
-- step frees it. It claims nothing once the schema is newer than it knows, so that it begins
-- no attempt that such a cancel could end.
COMMENT ON COLUMN recourse.runs.cancel_asked IS 'the attempt is to be the last; of a fork, what its dead letter had reserved stays so';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
