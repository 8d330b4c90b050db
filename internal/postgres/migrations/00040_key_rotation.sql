-- +goose Up

-- A key may be made to replace another one, and opens beside it. A key of the platform
-- shows what belongs to no tenant: asynqmon.
ALTER TABLE recourse.keys
    ADD COLUMN successor_of text NOT NULL DEFAULT '',
    DROP CONSTRAINT keys_roles_check,
    ADD CONSTRAINT keys_roles_check CHECK (cardinality(roles) > 0 AND roles <@ ARRAY['submitter', 'operator', 'approver', 'auditor', 'admin', 'platform']);

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
