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

-- Keeps the counts of days, whoever changes letters.
-- +goose StatementBegin
CREATE FUNCTION recourse.count_letters_by_day() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO recourse.facet_group_days AS s
        SELECT facet_group, floor(extract(epoch FROM dead_at) / 86400)::int, count(*), sum(at_risk), sum(attempts) FROM after_rows GROUP BY 1, 2
        ON CONFLICT (facet_group, day) DO UPDATE SET letters = s.letters + excluded.letters, at_risk = s.at_risk + excluded.at_risk, attempts = s.attempts + excluded.attempts;
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        MERGE INTO recourse.facet_group_days s
        USING (SELECT facet_group, floor(extract(epoch FROM dead_at) / 86400)::int AS day, sum(n) AS n, sum(risk) AS risk, sum(tries) AS tries FROM (
                 SELECT facet_group, dead_at, 1 AS n, at_risk AS risk, attempts AS tries FROM after_rows
                 UNION ALL SELECT facet_group, dead_at, -1, -at_risk, -attempts FROM before_rows) u
               GROUP BY 1, 2 HAVING sum(n) <> 0 OR sum(risk) <> 0 OR sum(tries) <> 0) d ON s.facet_group = d.facet_group AND s.day = d.day
        WHEN MATCHED AND s.letters + d.n = 0 THEN DELETE
        WHEN MATCHED THEN UPDATE SET letters = s.letters + d.n, at_risk = s.at_risk + d.risk, attempts = s.attempts + d.tries
        WHEN NOT MATCHED AND d.n > 0 THEN INSERT VALUES (d.facet_group, d.day, d.n, d.risk, d.tries);
        RETURN NULL;
    END IF;
    MERGE INTO recourse.facet_group_days s
    USING (SELECT facet_group, floor(extract(epoch FROM dead_at) / 86400)::int AS day, count(*) AS n, sum(at_risk) AS risk, sum(attempts) AS tries
           FROM before_rows GROUP BY 1, 2) d ON s.facet_group = d.facet_group AND s.day = d.day
    WHEN MATCHED AND s.letters = d.n THEN DELETE
    WHEN MATCHED THEN UPDATE SET letters = s.letters - d.n, at_risk = s.at_risk - d.risk, attempts = s.attempts - d.tries;
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
