-- +goose Up

-- The circuit breaker of a target over all tenants, whose tenant is empty, and those of a
-- target for one tenant, which people open. While one is not closed, claims of its runs
-- are refused but for its probes. version rises with every change, and is what a change
-- expects. opening counts how often it has opened, and asked the new cases that were let
-- through since.
--
-- A tenant's row also keeps its trail: told is the opening of the breaker over all tenants
-- that the trail says began, and over the last one that it says is over.
ALTER TABLE recourse.brakes
    DROP CONSTRAINT brakes_pkey,
    DROP CONSTRAINT brakes_tenant_check,
    DROP CONSTRAINT brakes_state_check,
    DROP COLUMN probe_run,
    DROP COLUMN let_due,
    DROP COLUMN let_run,
    DROP COLUMN goal,
    ADD COLUMN probes    uuid[] NOT NULL DEFAULT '{}',
    ADD COLUMN opened_at timestamptz NOT NULL DEFAULT '0001-01-01 00:00:00+00',
    ADD COLUMN opening   bigint NOT NULL DEFAULT 0,
    ADD COLUMN asked     bigint NOT NULL DEFAULT 0,
    ADD COLUMN paused    int    NOT NULL DEFAULT 0,
    ADD COLUMN told      bigint NOT NULL DEFAULT 0,
    ADD COLUMN over      bigint NOT NULL DEFAULT 0;
DROP INDEX IF EXISTS recourse.brakes_held;

-- What a person pulled stays open. What pulled itself, or was being let go, was of one
-- tenant: the workers close it with a receipt, and the breaker over all tenants takes its
-- place.
UPDATE recourse.brakes SET
    state     = CASE WHEN state = 'released' THEN 'closed' WHEN state = 'pulled' AND by_hand THEN 'open' ELSE 'half_open' END,
    by_hand   = by_hand AND state = 'pulled',
    opened_at = CASE WHEN state = 'released' THEN opened_at ELSE at END,
    opening   = CASE WHEN state = 'released' THEN 0 ELSE 1 END,
    version   = version + 1;

ALTER TABLE recourse.brakes
    ADD PRIMARY KEY (family, target, tenant),
    ADD CONSTRAINT brakes_state_check CHECK (state IN ('closed', 'open', 'half_open')),
    ADD CONSTRAINT brakes_told_check CHECK (over <= told);
CREATE INDEX brakes_held   ON recourse.brakes (family, target, tenant) WHERE state <> 'closed';
CREATE INDEX brakes_untold ON recourse.brakes (family, target) WHERE over < told;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
