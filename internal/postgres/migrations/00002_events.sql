-- +goose Up

-- What was committed and has no place in the order of events yet: one row per
-- tenant of a statement that wrote receipts, written by that statement. Nobody
-- looks for ids: one that is not seen yet may be committed after a higher one.
CREATE TABLE recourse.outbox (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant   text     NOT NULL,
    case_ids uuid[]   NOT NULL,
    seqs     bigint[] NOT NULL,
    CONSTRAINT pairs CHECK (cardinality(case_ids) = cardinality(seqs) AND cardinality(seqs) > 0)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The one order of receipts, of all tenants, without gaps: a row holds as many
-- numbers as it has pairs, the last of which is last. Within a row they go by
-- case and sequence.
CREATE TABLE recourse.event_log (
    last     bigint   PRIMARY KEY,
    tenant   text     NOT NULL,
    case_ids uuid[]   NOT NULL,
    seqs     bigint[] NOT NULL
);
CREATE INDEX event_log_tenant ON recourse.event_log (tenant, last);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON recourse.event_log
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite();
REVOKE UPDATE, DELETE, TRUNCATE ON recourse.event_log FROM PUBLIC, CURRENT_USER;

-- Receipts that are older than the order get their places in it too.
INSERT INTO recourse.outbox (tenant, case_ids, seqs)
SELECT tenant, array_agg(case_id), array_agg(seq) FROM recourse.receipts GROUP BY tenant, case_id ORDER BY min(at);

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
