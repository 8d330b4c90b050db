-- +goose Up

-- What the escrow service said of open letters whose outcome is unknown, when it was asked
-- without a person. next_at is when it is asked again; NULL when a person has to find out, and
-- waits_for says why. absent_at is when it first said that nothing was executed. It is a
-- record of asking, and decides nothing: a row that is lost is begun anew.
CREATE TABLE recourse.lookups (
    run_id    uuid PRIMARY KEY,
    tenant    text NOT NULL CHECK (tenant <> ''),
    asked     int  NOT NULL CHECK (asked > 0),
    asked_at  timestamptz NOT NULL,
    answer    text NOT NULL CHECK (answer IN ('executed', 'not_executed', 'unknown')),
    why       text NOT NULL DEFAULT '',
    moved     bigint NOT NULL DEFAULT 0,
    absent_at timestamptz,
    next_at   timestamptz,
    waits_for text NOT NULL DEFAULT '',
    CONSTRAINT waits_or_asks CHECK ((next_at IS NULL) = (waits_for <> ''))
) WITH (fillfactor = 70);

-- Cases with unknown money are few. Only what changes that writes to it.
CREATE INDEX cases_unknown ON recourse.cases (id) WHERE unknown_open > 0;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
