-- +goose Up

-- Access keys. The secret is not kept, only the SHA-256 of the whole token. Keys are
-- never deleted: their rows say whose deeds were whose.
CREATE TABLE recourse.keys (
    id           uuid   PRIMARY KEY,
    prefix       text   NOT NULL UNIQUE CHECK (prefix ~ '^[0-9A-Za-z]{12}$'),
    digest       bytea  NOT NULL CHECK (length(digest) = 32),
    tenant       text   NOT NULL CHECK (tenant <> ''),
    principal    text   NOT NULL CHECK (principal <> ''),
    roles        text[] NOT NULL CHECK (cardinality(roles) > 0 AND roles <@ ARRAY['submitter', 'operator', 'approver', 'auditor', 'admin']),
    created_at   timestamptz NOT NULL,
    created_by   text   NOT NULL CHECK (created_by <> ''),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    revoked_by   text   NOT NULL DEFAULT '',
    last_used_at timestamptz,
    CONSTRAINT revoked_by_somebody CHECK ((revoked_at IS NOT NULL) = (revoked_by <> ''))
) WITH (fillfactor = 70);
CREATE INDEX keys_tenant ON recourse.keys (tenant, created_at, id);

-- The cases without runs that a tenant has once: its keys, its refusals. Whoever holds
-- the row writes the case's receipts.
CREATE TABLE recourse.registers (
    tenant  text NOT NULL CHECK (tenant <> ''),
    subject text NOT NULL CHECK (subject <> ''),
    case_id uuid NOT NULL UNIQUE,
    PRIMARY KEY (tenant, subject)
);

-- Requests that named an Idempotency-Key, and what they were answered. One without a
-- status is being worked on by whoever holds its token.
CREATE TABLE recourse.requests (
    tenant  text   NOT NULL CHECK (tenant <> ''),
    key     text   NOT NULL CHECK (key <> ''),
    digest  bytea  NOT NULL CHECK (length(digest) = 32),
    token   uuid   NOT NULL,
    began   timestamptz NOT NULL,
    status  int,
    headers text   NOT NULL DEFAULT '',
    body    bytea,
    CONSTRAINT answered CHECK ((status IS NULL) = (body IS NULL)),
    PRIMARY KEY (tenant, key)
);
CREATE INDEX requests_began ON recourse.requests (began);

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
