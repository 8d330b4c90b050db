-- +goose Up

-- A role that opens cases, and may not move the head of one, writes nothing but openings: what it wrote otherwise could stop the events
-- of a tenant, or the list of dead letters of all.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION recourse.refuse_append() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'recourse: the role % may open cases, and add no receipt but the first of one that it opens', current_user USING ERRCODE = '42501';
END $$;
-- +goose StatementEnd

-- cases: texts are as long as ids may be, with room, so that indexes take them.
-- +goose StatementBegin
CREATE FUNCTION recourse.check_opened_case() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.kind = 'operations' OR octet_length(NEW.tenant) > 512 OR octet_length(NEW.subject) > 512 OR octet_length(NEW.submission) > 512 OR NOT isfinite(coalesce(NEW.first_sent_at, now())) THEN
        RAISE EXCEPTION 'recourse: the role % may open cases, and no case that no submission opens', current_user USING ERRCODE = '42501';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- runs: a run that waits for its first attempt. Redis takes no empty name.
-- +goose StatementBegin
CREATE FUNCTION recourse.check_opened_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state <> 'pending' OR NEW.attempt_count > 0 OR NEW.class <> '' OR NEW.cancel_requested OR NOT isfinite(NEW.due_at) OR NOT isfinite(coalesce(NEW.expires_at, NEW.due_at))
      OR NEW.family !~ '[!-~]' OR NEW.queue !~ '[!-~]'
      OR octet_length(NEW.tenant) > 512 OR octet_length(NEW.family) > 512 OR octet_length(NEW.retry_key) > 512 OR octet_length(NEW.queue) > 512 OR octet_length(NEW.target) > 512 THEN
        RAISE EXCEPTION 'recourse: the role % may open runs that wait for their first attempt, and no other', current_user USING ERRCODE = '42501';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- outbox: the first receipt of one case, which is there, of the tenant. A place of no receipt would be one that no reader gets beyond.
-- +goose StatementBegin
CREATE FUNCTION recourse.check_opened_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(NEW.seqs) <> 1 OR NEW.seqs[1] IS DISTINCT FROM 1
      OR NOT EXISTS (SELECT FROM recourse.receipts r WHERE r.case_id = NEW.case_ids[1] AND r.seq = 1 AND r.tenant = NEW.tenant) THEN
        RAISE EXCEPTION 'recourse: the role % may open cases, and give no place in the order of events to anything else', current_user USING ERRCODE = '42501';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
