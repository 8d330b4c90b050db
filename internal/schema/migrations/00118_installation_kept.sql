-- +goose Up

-- Also for the identity of the database, which no submission fixes.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION recourse.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'recourse: what a row of % was made with is never changed', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
-- +goose StatementEnd

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
