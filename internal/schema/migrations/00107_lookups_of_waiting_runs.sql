-- +goose Up

-- attempt is the run's last attempt when the escrow service was asked: an answer covers no later one.
ALTER TABLE recourse.lookups ADD COLUMN attempt int NOT NULL DEFAULT 0;
UPDATE recourse.lookups l SET attempt = r.attempt_count FROM recourse.runs r WHERE r.id = l.run_id;
COMMENT ON TABLE recourse.lookups IS 'One row per run of unknown outcome that was looked up, a waiting one or an open dead letter, and the last answer';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
