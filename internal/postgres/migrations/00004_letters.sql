-- +goose Up

-- Dead letters as they are searched for: a projection of runs, cases and what was
-- said of them, filled behind the sequencer. It only finds; what a letter is, and
-- what may be done with it, is read from runs and cases.

-- What letters have in common, so that whatever can be told by it is looked for among
-- a few shapes instead of all letters. signature is the error's, constant the parts
-- of the message that all letters of the shape have (in lower case, with \x01 between
-- them), whole whether that is all of it. letters is how many have the shape now.
CREATE TABLE recourse.letter_shapes (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest      bytea  NOT NULL UNIQUE CHECK (length(digest) = 32),
    tenant      text   NOT NULL CHECK (tenant <> ''),
    standing    text   NOT NULL CHECK (standing IN ('open', 'forked', 'reconciled', 'superseded')),
    family      text   NOT NULL,
    queue       text   NOT NULL,
    job_type    text   NOT NULL,
    outcome     text   NOT NULL,
    reason_code text   NOT NULL,
    class       text   NOT NULL,
    error_type  text   NOT NULL,
    currency    text   NOT NULL,
    signature   text   NOT NULL,
    constant    text   NOT NULL,
    whole       bool   NOT NULL,
    replayed_by text   NOT NULL,
    held        bool   NOT NULL,
    unresolved  bool   NOT NULL,
    eligible    bool   NOT NULL,
    review      bool   NOT NULL,
    letters     bigint NOT NULL DEFAULT 0 CHECK (letters >= 0)
) WITH (fillfactor = 50);
CREATE INDEX letter_shapes_tenant ON recourse.letter_shapes (tenant); -- of nothing that counting changes

-- error_text is kept only where the shape does not hold all of it.
CREATE TABLE recourse.letters (
    run_id       uuid   PRIMARY KEY,
    tenant       text   NOT NULL CHECK (tenant <> ''),
    shape        bigint NOT NULL,
    transaction  text   NOT NULL,
    submission   text   NOT NULL,
    escrow       text   NOT NULL,
    dead_at      timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    amount       bigint NOT NULL,
    attempts     int    NOT NULL,
    replays      int    NOT NULL,
    bell         int    NOT NULL,
    error_text   text   NOT NULL
) WITH (fillfactor = 90, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX letters_transaction ON recourse.letters (tenant, transaction);
CREATE INDEX letters_submission  ON recourse.letters (tenant, submission) WHERE submission <> '';
CREATE INDEX letters_escrow      ON recourse.letters (tenant, escrow) WHERE escrow <> '';

-- An order of all letters of a tenant, walked with the filter beside each entry; and
-- the same order within each shape, merged when the filter leaves few shapes.
CREATE INDEX letters_dead     ON recourse.letters (tenant, dead_at, run_id)      INCLUDE (shape, amount, attempts, replays, last_seen_at);
CREATE INDEX letters_seen     ON recourse.letters (tenant, last_seen_at, run_id) INCLUDE (shape, amount, attempts, replays, dead_at);
CREATE INDEX letters_amount   ON recourse.letters (tenant, amount, run_id)       INCLUDE (shape, attempts, replays, dead_at, last_seen_at);
CREATE INDEX letters_attempts ON recourse.letters (tenant, attempts, run_id)     INCLUDE (shape, amount, replays, dead_at, last_seen_at);
CREATE INDEX letters_shape_dead     ON recourse.letters (shape, dead_at, run_id) INCLUDE (amount, attempts, replays, last_seen_at);
CREATE INDEX letters_shape_seen     ON recourse.letters (shape, last_seen_at, run_id);
CREATE INDEX letters_shape_amount   ON recourse.letters (shape, amount, run_id);
CREATE INDEX letters_shape_attempts ON recourse.letters (shape, attempts, run_id);

-- How many letters a shape has changes with the letters, whoever changes them.
-- +goose StatementBegin
CREATE FUNCTION recourse.count_letters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE recourse.letter_shapes s SET letters = s.letters + d.n
        FROM (SELECT shape, count(*) AS n FROM after_rows GROUP BY shape) d WHERE s.id = d.shape;
    ELSIF TG_OP = 'DELETE' THEN
        UPDATE recourse.letter_shapes s SET letters = s.letters - d.n
        FROM (SELECT shape, count(*) AS n FROM before_rows GROUP BY shape) d WHERE s.id = d.shape;
    ELSE
        UPDATE recourse.letter_shapes s SET letters = s.letters + d.n
        FROM (SELECT shape, sum(n) AS n FROM (
                SELECT shape, 1 AS n FROM after_rows UNION ALL SELECT shape, -1 FROM before_rows) u GROUP BY shape HAVING sum(n) <> 0) d
        WHERE s.id = d.shape;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER count_made    AFTER INSERT ON recourse.letters REFERENCING NEW TABLE AS after_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters();
CREATE TRIGGER count_changed AFTER UPDATE ON recourse.letters REFERENCING OLD TABLE AS before_rows NEW TABLE AS after_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters();
CREATE TRIGGER count_gone    AFTER DELETE ON recourse.letters REFERENCING OLD TABLE AS before_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters();

-- How far the order of events is projected. Whoever projects holds the row.
CREATE TABLE recourse.projected (
    name text   PRIMARY KEY,
    last bigint NOT NULL CHECK (last >= 0)
) WITH (fillfactor = 50);
INSERT INTO recourse.projected (name, last) VALUES ('letters', 0);

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
