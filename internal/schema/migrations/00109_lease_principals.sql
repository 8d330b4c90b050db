-- +goose Up

-- principal is who fetched the run.
ALTER TABLE recourse.leases ADD COLUMN principal text NOT NULL DEFAULT '';
COMMENT ON COLUMN recourse.leases.principal IS 'who fetched the run; no other principal answers for it. Empty in leases of versions before';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
