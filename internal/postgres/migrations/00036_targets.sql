-- +goose Up

-- Targets that go by the circuit breaker of another one: their runs are executed by the same
-- escrow service, and its breaker must hold whatever name they use. A target without a row has
-- a breaker of its own. Processes that execute write it when they start.
CREATE TABLE recourse.targets (
    family  text NOT NULL,
    name    text NOT NULL CHECK (name <> ''),
    breaker text NOT NULL CHECK (breaker <> ''),
    PRIMARY KEY (family, name)
);

-- The escrow services that a process calls, by the names that it has for them.
ALTER TABLE recourse.sessions ADD COLUMN targets text[] NOT NULL DEFAULT '{}';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
