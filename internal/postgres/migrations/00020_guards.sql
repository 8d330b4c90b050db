-- +goose Up

-- What a submission fixed stays so: what is sent, to whom, under which key, and what the
-- escrow holds. The statements of the product that move runs, cases and escrows name
-- none of these columns, so that their guards cost them nothing. The triggers themselves
-- are made by guards.go, after every migration, and fire in every session.
-- +goose StatementBegin
CREATE FUNCTION recourse.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'recourse: what a submission fixed in % is never changed', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
-- +goose StatementEnd

-- The payload of a task that moves no money goes with its letter, in a transaction that
-- says so. Whoever says so without being asked is found by the digest in the receipt.
-- +goose StatementBegin
CREATE FUNCTION recourse.refuse_payload() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('recourse.erasing', true) IS DISTINCT FROM 'purged' THEN
        RAISE EXCEPTION 'recourse: the payload of a run is never changed' USING ERRCODE = '42501';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- An escrow that was named by a submission which never became a case may be corrected.
-- Whoever opens a case locks its escrow, so that no case begins meanwhile.
-- +goose StatementBegin
CREATE FUNCTION recourse.refuse_other_sum() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM recourse.cases c WHERE c.escrow_id = OLD.id) THEN
        RAISE EXCEPTION 'recourse: what an escrow holds is never changed once a case names it' USING ERRCODE = '42501';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
