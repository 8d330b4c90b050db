-- +goose Up

-- Which database this is, so that a Redis by which another database's work is notified is
-- told from its own; and on which timeline of its server's log it was seen last. A failover
-- or a restore begins a new one, and may have lost what was committed last on the old one.
CREATE TABLE recourse.installation (
    one             bool   PRIMARY KEY DEFAULT true CHECK (one),
    id              uuid   NOT NULL DEFAULT gen_random_uuid(),
    timeline        bigint NOT NULL DEFAULT 0,
    timeline_before bigint NOT NULL DEFAULT 0,
    timeline_seen   timestamptz
);
-- The first process that executes makes the row: a data-only restore finds none in its way.

-- The Redis that a process's notifications go by, as the random marker in it names it; null
-- when it is not known, as of a process of an older program.
ALTER TABLE recourse.sessions ADD COLUMN redis text;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
