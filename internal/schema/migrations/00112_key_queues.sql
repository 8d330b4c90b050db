-- +goose Up

-- queues are those from which a worker with the key fetches.
ALTER TABLE recourse.keys ADD COLUMN queues text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN recourse.keys.queues IS 'names of the queues from which a worker with the key fetches, in which * stands for any text; empty: all that are no payment queues';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
