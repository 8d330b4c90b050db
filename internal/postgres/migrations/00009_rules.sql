-- +goose Up

-- Rules: what is done by itself with the dead letters of a tenant. definition is JSON.
-- version counts the changes, and never begins anew: a rule that was deleted stays,
-- so that one made under its name goes on with its counts.
CREATE TABLE recourse.rules (
    tenant     text   NOT NULL CHECK (tenant <> ''),
    name       text   NOT NULL CHECK (name <> ''),
    version    bigint NOT NULL CHECK (version >= 0),
    enabled    bool   NOT NULL,
    deleted    bool   NOT NULL,
    definition text   NOT NULL,
    actor      text   NOT NULL,
    reason     text   NOT NULL,
    at         timestamptz NOT NULL,
    PRIMARY KEY (tenant, name),
    CONSTRAINT deleted_is_off CHECK (NOT (deleted AND enabled))
) WITH (fillfactor = 50);
CREATE INDEX rules_enabled ON recourse.rules (tenant, name) WHERE enabled;

-- How often a rule has replayed the letters of a lineage, which its first run names. A
-- row is written by the transaction that forks the letter.
CREATE TABLE recourse.rule_replays (
    root    uuid NOT NULL,
    rule    text NOT NULL CHECK (rule <> ''),
    tenant  text NOT NULL CHECK (tenant <> ''),
    replays int  NOT NULL CHECK (replays >= 1),
    last_at timestamptz NOT NULL,
    PRIMARY KEY (root, rule)
) WITH (fillfactor = 80);

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
