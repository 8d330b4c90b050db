-- +goose Up

-- What stays reserved for a letter while it is open; and the sums over the letters of a
-- shape, so that they are told without looking at letters. That of money is numeric: no
-- amounts that somebody submits may keep letters from being listed.
ALTER TABLE recourse.letters ADD COLUMN at_risk bigint NOT NULL DEFAULT 0;
ALTER TABLE recourse.letter_shapes
    ADD COLUMN at_risk numeric NOT NULL DEFAULT 0 CHECK (at_risk >= 0),
    ADD COLUMN attempts bigint NOT NULL DEFAULT 0;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION recourse.count_letters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE recourse.letter_shapes s SET letters = s.letters + d.n, at_risk = s.at_risk + d.risk, attempts = s.attempts + d.tries
        FROM (SELECT shape, count(*) AS n, sum(at_risk) AS risk, sum(attempts) AS tries FROM after_rows GROUP BY shape) d WHERE s.id = d.shape;
    ELSIF TG_OP = 'DELETE' THEN
        UPDATE recourse.letter_shapes s SET letters = s.letters - d.n, at_risk = s.at_risk - d.risk, attempts = s.attempts - d.tries
        FROM (SELECT shape, count(*) AS n, sum(at_risk) AS risk, sum(attempts) AS tries FROM before_rows GROUP BY shape) d WHERE s.id = d.shape;
    ELSE
        UPDATE recourse.letter_shapes s SET letters = s.letters + d.n, at_risk = s.at_risk + d.risk, attempts = s.attempts + d.tries
        FROM (SELECT shape, sum(n) AS n, sum(risk) AS risk, sum(tries) AS tries FROM (
                SELECT shape, 1 AS n, at_risk AS risk, attempts AS tries FROM after_rows UNION ALL SELECT shape, -1, -at_risk, -attempts FROM before_rows) u
              GROUP BY shape HAVING sum(n) <> 0 OR sum(risk) <> 0 OR sum(tries) <> 0) d
        WHERE s.id = d.shape;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

UPDATE recourse.letters l SET at_risk = c.reserved
FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id WHERE r.id = l.run_id AND r.letter = 'open' AND c.reserved > 0;

UPDATE recourse.letter_shapes s SET attempts = d.tries FROM (SELECT shape, sum(attempts) AS tries FROM recourse.letters GROUP BY shape) d WHERE s.id = d.shape;

-- The order within each shape, with what is added up.
CREATE INDEX letters_shape_died ON recourse.letters (shape, dead_at, run_id) INCLUDE (amount, attempts, replays, last_seen_at, at_risk);
DROP INDEX recourse.letters_shape_dead;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
