-- +goose Up

-- fetch_key is the digest of the Idempotency-Key of the fetch that gave the lease, and of whose it is.
-- A repeated fetch gives the leases of its key again while they are held.
ALTER TABLE recourse.leases
    ADD COLUMN fetch_key bytea CHECK (length(fetch_key) = 32);
-- Read by fetches that have a key.
CREATE INDEX leases_fetch_key ON recourse.leases (tenant, fetch_key) WHERE fetch_key IS NOT NULL;

-- first_began is when the first request with the key began, whose process may have died after it did what
-- was asked. began is when the last one did.
ALTER TABLE recourse.requests
    ADD COLUMN first_began timestamptz;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
