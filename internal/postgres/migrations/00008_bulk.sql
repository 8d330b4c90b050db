-- +goose Up

-- Plans: one action for many letters. asked is what is to be done, as canonical JSON,
-- and hash covers it, who asks and why, and every item. number names the lock of
-- whoever works on it. settled is false while items of a cancelled plan may have been
-- acted on without being marked so.
CREATE TABLE recourse.bulks (
    id         uuid   PRIMARY KEY,
    number     int    GENERATED ALWAYS AS IDENTITY UNIQUE,
    tenant     text   NOT NULL CHECK (tenant <> ''),
    state      text   NOT NULL CHECK (state IN ('planned', 'running', 'paused', 'done', 'cancelled')),
    settled    bool   NOT NULL DEFAULT true,
    action     text   NOT NULL CHECK (action <> ''),
    asked      text   NOT NULL,
    actor      text   NOT NULL CHECK (actor <> ''),
    reason     text   NOT NULL CHECK (reason <> ''),
    parallel   int    NOT NULL CHECK (parallel > 0),
    throttle   int    NOT NULL CHECK (throttle >= 0),
    items      bigint NOT NULL CHECK (items >= 0),
    hash       bytea  NOT NULL CHECK (length(hash) = 32),
    planned_at timestamptz NOT NULL,
    started_by text   NOT NULL DEFAULT '',
    started_at timestamptz,
    moved_by   text   NOT NULL DEFAULT '',
    moved_why  text   NOT NULL DEFAULT '',
    moved_at   timestamptz,
    ended_at   timestamptz,
    CONSTRAINT started_by_somebody CHECK ((started_at IS NOT NULL) = (started_by <> '')),
    CONSTRAINT works_when_started  CHECK (started_at IS NOT NULL OR state IN ('planned', 'cancelled')),
    CONSTRAINT ends_in_the_end     CHECK ((ended_at IS NOT NULL) = (state IN ('done', 'cancelled')))
) WITH (fillfactor = 50);
CREATE INDEX bulks_tenant ON recourse.bulks (tenant, id);
CREATE INDEX bulks_due    ON recourse.bulks (number) WHERE state = 'running' OR NOT settled;

-- The letters of a plan in their order, as they were when it was made: seq and link
-- are the head of the case, which guards the action. gate refused them then; outcome
-- is what became of them, and is written once.
CREATE TABLE recourse.bulk_items (
    bulk_id  uuid   NOT NULL,
    position bigint NOT NULL CHECK (position >= 1),
    run_id   uuid   NOT NULL,
    case_id  uuid   NOT NULL,
    seq      bigint NOT NULL,
    link     bytea  NOT NULL,
    amount   bigint NOT NULL,
    currency text   NOT NULL,
    gate     text   NOT NULL DEFAULT '',
    outcome  text   NOT NULL DEFAULT '',
    new_run  uuid,
    error    text   NOT NULL DEFAULT '',
    PRIMARY KEY (bulk_id, position)
) WITH (fillfactor = 80);
CREATE INDEX bulk_items_left  ON recourse.bulk_items (bulk_id, position) WHERE outcome = '';
CREATE INDEX bulk_items_ended ON recourse.bulk_items (bulk_id, outcome, position) WHERE outcome <> '';

-- How many items, and how much money: when a plan was made by the gate that refused
-- them (none: empty), and when it ran by their outcome.
CREATE TABLE recourse.bulk_counts (
    bulk_id  uuid   NOT NULL,
    ran      bool   NOT NULL,
    word     text   NOT NULL,
    currency text   NOT NULL,
    items    bigint NOT NULL,
    amount   bigint NOT NULL,
    PRIMARY KEY (bulk_id, ran, word, currency)
) WITH (fillfactor = 50);

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
