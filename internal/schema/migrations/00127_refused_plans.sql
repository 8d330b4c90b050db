-- +goose Up

-- A plan that nobody has started can be refused by a person who may start it.
ALTER TABLE recourse.bulks DROP CONSTRAINT bulks_state_check,
    ADD CONSTRAINT bulks_state_check CHECK (state IN ('planned', 'running', 'paused', 'done', 'cancelled', 'refused'));

-- A refused plan did nothing.
ALTER TABLE recourse.bulks DROP CONSTRAINT works_when_started,
    ADD CONSTRAINT works_when_started CHECK (started_at IS NOT NULL OR state IN ('planned', 'cancelled', 'refused'));

-- A refusal is for good.
ALTER TABLE recourse.bulks DROP CONSTRAINT ends_in_the_end,
    ADD CONSTRAINT ends_in_the_end CHECK ((ended_at IS NOT NULL) = (state IN ('done', 'cancelled', 'refused')));

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
