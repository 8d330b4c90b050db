-- +goose Up

-- What a process says of itself with each beat: when that was, which queues it takes runs
-- from, and why it claims nothing while it does not. So that everybody can be told why a run
-- waits; nothing is decided by it.
ALTER TABLE recourse.sessions
    ADD COLUMN beat_at timestamptz,
    ADD COLUMN queues text[] NOT NULL DEFAULT '{}',
    ADD COLUMN barred text   NOT NULL DEFAULT '';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
