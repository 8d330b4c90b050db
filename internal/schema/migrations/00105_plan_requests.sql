-- +goose Up

-- made_for identifies the request with an Idempotency-Key that made the plan: it makes one plan only.
ALTER TABLE recourse.bulks ADD COLUMN made_for text NOT NULL DEFAULT '';
-- Read by a request that is sent again.
CREATE UNIQUE INDEX bulks_made_for ON recourse.bulks (tenant, made_for) WHERE made_for <> '';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
