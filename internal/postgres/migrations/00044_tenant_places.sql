-- +goose Up

-- Each tenant has an order of its own, so that the places of its receipts tell nothing of how
-- many the others have. tenant_last is to it what last is to the order of all; it is NULL in
-- rows of older programs, whose places are those in the order of all. Such a place is never
-- below that in the tenant's order, so that a position that somebody kept stays good.
ALTER TABLE recourse.event_log ADD COLUMN tenant_last bigint CHECK (tenant_last <= last);
CREATE UNIQUE INDEX event_log_tenant_last ON recourse.event_log (tenant, coalesce(tenant_last, last));
DROP INDEX recourse.event_log_tenant;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
