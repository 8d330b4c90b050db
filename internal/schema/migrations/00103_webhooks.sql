-- +goose Up

-- Webhooks: public events of a tenant go out to its URLs, signed.

-- definition is what the last receipt says: URL, types, description and state as JSON. secret is
-- encrypted; the former one is sent beside it until former_until. A deleted webhook keeps its row
-- for the audit, without secrets.
CREATE TABLE recourse.webhooks (
    id            uuid   PRIMARY KEY,
    tenant        text   NOT NULL CHECK (tenant <> ''),
    version       bigint NOT NULL CHECK (version >= 1),
    state         text   NOT NULL CHECK (state IN ('active', 'paused', 'deleted')),
    definition    text   NOT NULL,
    secret        bytea,
    former_secret bytea,
    former_until  timestamptz,
    created_at    timestamptz NOT NULL,
    created_by    text   NOT NULL,
    changed_at    timestamptz NOT NULL,
    changed_by    text   NOT NULL,
    reason        text   NOT NULL,
    CONSTRAINT deleted_has_no_secret CHECK ((state = 'deleted') = (secret IS NULL)),
    CONSTRAINT former_secret_ends CHECK ((former_secret IS NULL) = (former_until IS NULL))
) WITH (fillfactor = 70);
COMMENT ON TABLE recourse.webhooks IS 'One row per webhook: a URL to which events of a tenant are sent';
-- Read by lists.
CREATE INDEX webhooks_tenant ON recourse.webhooks (tenant, created_at, id) WHERE state <> 'deleted';
-- Read by the sender.
CREATE INDEX webhooks_active ON recourse.webhooks (id) WHERE state = 'active';

-- How far a webhook is: every event up to read_to was delivered or is not wanted, except those at
-- the positions in pending. version rises when a person sets the position; the sender writes only
-- under the version that it has read. failing_since is when the oldest event that is not delivered
-- failed first.
CREATE TABLE recourse.webhook_positions (
    webhook_id    uuid     PRIMARY KEY,
    tenant        text     NOT NULL CHECK (tenant <> ''),
    version       bigint   NOT NULL CHECK (version >= 1),
    read_to       bigint   NOT NULL CHECK (read_to >= 0),
    pending       bigint[] NOT NULL,
    delivered     bigint   NOT NULL DEFAULT 0,
    delivered_at  timestamptz,
    failures      bigint   NOT NULL DEFAULT 0,
    failing_since timestamptz,
    last_failure  text     NOT NULL DEFAULT '',
    CONSTRAINT pending_is_bounded CHECK (cardinality(pending) <= 1000)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE recourse.webhook_positions IS 'One row per webhook: how far it is in the order of events';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
