-- +goose Up

-- Texts of one and two characters, too short for grams, that messages of one constant
-- part contain and that part does not: a short text that is not here is in none of
-- them. They only grow. NULL: a message may contain any. That is so for messages from
-- before, and for those that somebody lists who does not say that they are told here.
CREATE TABLE recourse.letter_short_texts (
    tenant   text NOT NULL CHECK (tenant <> ''),
    constant text NOT NULL,
    texts    text[],
    PRIMARY KEY (tenant, constant)
) WITH (fillfactor = 50);

INSERT INTO recourse.letter_short_texts (tenant, constant) SELECT DISTINCT tenant, constant FROM recourse.letter_shapes WHERE NOT whole;

-- +goose StatementBegin
CREATE FUNCTION recourse.doubt_short_texts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('recourse.short_texts', true) IS DISTINCT FROM 'told' THEN
        INSERT INTO recourse.letter_short_texts AS t (tenant, constant)
        SELECT DISTINCT s.tenant, s.constant FROM after_rows a JOIN recourse.letter_shapes s ON s.id = a.shape WHERE NOT s.whole
        ON CONFLICT (tenant, constant) DO UPDATE SET texts = NULL WHERE t.texts IS NOT NULL;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER doubt_made    AFTER INSERT ON recourse.letters REFERENCING NEW TABLE AS after_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.doubt_short_texts();
CREATE TRIGGER doubt_changed AFTER UPDATE ON recourse.letters REFERENCING NEW TABLE AS after_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.doubt_short_texts();

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
