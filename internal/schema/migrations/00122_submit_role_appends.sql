-- +goose Up

-- A role that opens cases, and may not move the head of one, adds no receipt to a case that exists.
-- +goose StatementBegin
CREATE FUNCTION recourse.refuse_append() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'recourse: the role % may open cases, and add no receipt to one that exists', current_user USING ERRCODE = '42501';
END $$;
-- +goose StatementEnd

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
