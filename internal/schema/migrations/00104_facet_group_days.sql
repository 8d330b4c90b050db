-- +goose Up

-- Dead letters of facet groups by the day of their death in UTC, as days since 1970-01-01: what a
-- total over a time range adds up, and what an offset leaves out. A day without letters has no row.
CREATE TABLE recourse.facet_group_days (
    facet_group bigint  NOT NULL,
    day         int     NOT NULL,
    letters     bigint  NOT NULL CHECK (letters > 0),
    at_risk     numeric NOT NULL CHECK (at_risk >= 0),
    attempts    bigint  NOT NULL,
    PRIMARY KEY (facet_group, day)
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.facet_group_days IS 'One row per facet group and day of death: its letters, counted';

-- Keeps the counts of days, whoever changes letters. An update adds what is there after it, then
-- subtracts what was there before.
-- +goose StatementBegin
CREATE FUNCTION recourse.count_letters_by_day() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        MERGE INTO recourse.facet_group_days s
        USING (SELECT facet_group, floor(extract(epoch FROM dead_at) / 86400)::int AS day, count(*) AS n, sum(at_risk) AS risk, sum(attempts) AS tries
               FROM after_rows GROUP BY 1, 2) d ON s.facet_group = d.facet_group AND s.day = d.day
        WHEN MATCHED THEN UPDATE SET letters = s.letters + d.n, at_risk = s.at_risk + d.risk, attempts = s.attempts + d.tries
        WHEN NOT MATCHED THEN INSERT VALUES (d.facet_group, d.day, d.n, d.risk, d.tries);
    END IF;
    IF TG_OP <> 'INSERT' THEN
        MERGE INTO recourse.facet_group_days s
        USING (SELECT facet_group, floor(extract(epoch FROM dead_at) / 86400)::int AS day, count(*) AS n, sum(at_risk) AS risk, sum(attempts) AS tries
               FROM before_rows GROUP BY 1, 2) d ON s.facet_group = d.facet_group AND s.day = d.day
        WHEN MATCHED AND s.letters = d.n THEN DELETE
        WHEN MATCHED THEN UPDATE SET letters = s.letters - d.n, at_risk = s.at_risk - d.risk, attempts = s.attempts - d.tries;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- Every change of letters counts.
CREATE TRIGGER counts_days_insert AFTER INSERT ON recourse.letters REFERENCING NEW TABLE AS after_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters_by_day();
CREATE TRIGGER counts_days_update AFTER UPDATE ON recourse.letters REFERENCING OLD TABLE AS before_rows NEW TABLE AS after_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters_by_day();
CREATE TRIGGER counts_days_delete AFTER DELETE ON recourse.letters REFERENCING OLD TABLE AS before_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters_by_day();

INSERT INTO recourse.facet_group_days
SELECT facet_group, floor(extract(epoch FROM dead_at) / 86400)::int, count(*), sum(at_risk), sum(attempts) FROM recourse.letters GROUP BY 1, 2;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
