-- +goose Up

-- How many people it takes to state or free money by hand, where a tenant has another number
-- than two. The receipts of the tenant's register "people" tell who set it, and why.
CREATE TABLE recourse.people (
    tenant text PRIMARY KEY CHECK (tenant <> ''),
    people int  NOT NULL CHECK (people IN (1, 2)),
    actor  text NOT NULL CHECK (actor <> ''),
    reason text NOT NULL CHECK (reason <> ''),
    at     timestamptz NOT NULL
);

-- By which keys a plan was made and started: prefixes, empty where no key proves who it was.
-- settles: it is about a settlement. people is how many it took to start it: 0 where it moves
-- no money or was started by an older program. declared: one of them is as that person says.
-- incident is for what one person let it run who needs a second one, and why.
ALTER TABLE recourse.bulks
    ADD COLUMN planned_key    text NOT NULL DEFAULT '',
    ADD COLUMN started_key    text NOT NULL DEFAULT '',
    ADD COLUMN started_why    text NOT NULL DEFAULT '',
    ADD COLUMN settles        bool NOT NULL DEFAULT true,
    ADD COLUMN people         int  NOT NULL DEFAULT 0 CHECK (people BETWEEN 0 AND 2),
    ADD COLUMN declared       bool NOT NULL DEFAULT false,
    ADD COLUMN incident       text NOT NULL DEFAULT '';
CREATE INDEX bulks_incident ON recourse.bulks (id) WHERE incident <> '';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
