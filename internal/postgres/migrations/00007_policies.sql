-- +goose Up

-- What a person set as the retry policy of a family for a tenant, in the place of
-- the configured one. version counts the changes, and is the sequence of the last
-- receipt in the case that tells of them.
CREATE TABLE recourse.policies (
    tenant  text   NOT NULL CHECK (tenant <> ''),
    family  text   NOT NULL CHECK (family <> ''),
    case_id uuid   NOT NULL,
    version bigint NOT NULL CHECK (version >= 0),
    policy  text   NOT NULL,
    actor   text   NOT NULL,
    reason  text   NOT NULL,
    at      timestamptz NOT NULL,
    PRIMARY KEY (tenant, family)
) WITH (fillfactor = 50);

-- Which run handles which dead letter. A row is written by the transaction in which
-- the letter's run dies and the handler's begins.
CREATE TABLE recourse.handlers (
    letter uuid PRIMARY KEY,
    run    uuid NOT NULL UNIQUE,
    tenant text NOT NULL CHECK (tenant <> '')
);

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
