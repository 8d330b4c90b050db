-- +goose Up

-- The statement that writes a run writes or locks its case, and so for a case and its
-- escrow: what they refer to is there. That it stays is what is held here, for
-- everybody; foreign keys held both, for a search and a row lock for every row.
ALTER TABLE recourse.runs  DROP CONSTRAINT runs_case_id_fkey;
ALTER TABLE recourse.cases DROP CONSTRAINT cases_escrow_id_fkey;

-- +goose StatementBegin
CREATE FUNCTION recourse.refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'recourse: rows of % are never removed', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
-- +goose StatementEnd
CREATE TRIGGER never_removed BEFORE DELETE OR TRUNCATE ON recourse.escrows    FOR EACH STATEMENT EXECUTE FUNCTION recourse.refuse_removal();
CREATE TRIGGER never_removed BEFORE DELETE OR TRUNCATE ON recourse.cases      FOR EACH STATEMENT EXECUTE FUNCTION recourse.refuse_removal();
CREATE TRIGGER never_removed BEFORE DELETE OR TRUNCATE ON recourse.runs       FOR EACH STATEMENT EXECUTE FUNCTION recourse.refuse_removal();
CREATE TRIGGER never_removed BEFORE DELETE OR TRUNCATE ON recourse.operations FOR EACH STATEMENT EXECUTE FUNCTION recourse.refuse_removal();

-- Room for the claims of all runs of a page beside the runs: at 70 every second claim
-- found its page full, and wrote five index entries that it need not.
ALTER TABLE recourse.runs SET (fillfactor = 50);

-- The projection asks of every case that moved whether it has dead runs; most have none.
CREATE INDEX runs_dead_of_case ON recourse.runs (case_id) WHERE dead_at IS NOT NULL;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
