-- +goose Up

-- The brake of one target, for all processes: while it is not released, claims of
-- the target's runs are refused, but for the probe and, while it eases, for those
-- up to (let_due, let_run). version rises with every change, and is what a change
-- expects.
CREATE TABLE recourse.brakes (
    tenant    text   NOT NULL CHECK (tenant <> ''),
    family    text   NOT NULL,
    target    text   NOT NULL,
    case_id   uuid   NOT NULL,
    state     text   NOT NULL CHECK (state IN ('released', 'pulled', 'easing')),
    by_hand   bool   NOT NULL,
    actor     text   NOT NULL,
    cause     text   NOT NULL,
    reason    text   NOT NULL,
    at        timestamptz NOT NULL,
    version   bigint NOT NULL,
    probe_run uuid,
    let_due   timestamptz NOT NULL,
    let_run   uuid   NOT NULL,
    goal      timestamptz NOT NULL,
    PRIMARY KEY (tenant, family, target)
) WITH (fillfactor = 50);
CREATE INDEX brakes_held ON recourse.brakes (tenant, family, target) WHERE state <> 'released';

-- The receipts of a brake are those of a case without runs.
ALTER TABLE recourse.cases
    ALTER COLUMN run_id DROP NOT NULL,
    DROP CONSTRAINT cases_kind_check,
    ADD CONSTRAINT cases_kind_check CHECK (kind IN ('settlement', 'plain', 'operations')),
    ADD CONSTRAINT operations_have_no_run CHECK ((kind = 'operations') = (run_id IS NULL));

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
