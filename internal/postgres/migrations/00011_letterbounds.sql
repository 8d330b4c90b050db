-- +goose Up

-- Between what the letters of a shape lie in each order, so that a search begins where
-- the first of them can be and passes over shapes that have none there. Bounds only
-- grow: they may be wider than the letters are, never narrower. most_lag is the longest
-- time from a letter's death to when its case was last seen. Times are microseconds
-- since 1970, for many of them are read at once.
ALTER TABLE recourse.letter_shapes
    ADD COLUMN first_dead     bigint,
    ADD COLUMN last_dead      bigint,
    ADD COLUMN first_seen     bigint,
    ADD COLUMN last_seen      bigint,
    ADD COLUMN least_amount   bigint,
    ADD COLUMN most_amount    bigint,
    ADD COLUMN least_attempts int,
    ADD COLUMN most_attempts  int,
    ADD COLUMN most_lag       bigint;

-- grams tell of three characters in a row that a letter's message has and its shape's
-- constant part has not, so that a text is looked for among the few messages that can
-- contain it. 0 among them: it may contain any. That is so for letters from before,
-- whose messages are all looked at.
ALTER TABLE recourse.letters ADD COLUMN grams int[] NOT NULL DEFAULT '{0}';
CREATE INDEX letters_grams ON recourse.letters USING gin (grams) WITH (gin_pending_list_limit = 256);

UPDATE recourse.letter_shapes s
SET first_dead = d.first_dead, last_dead = d.last_dead, first_seen = d.first_seen, last_seen = d.last_seen, least_amount = d.least_amount,
  most_amount = d.most_amount, least_attempts = d.least_attempts, most_attempts = d.most_attempts, most_lag = d.most_lag
FROM (SELECT shape, (extract(epoch FROM min(dead_at)) * 1000000)::bigint AS first_dead, (extract(epoch FROM max(dead_at)) * 1000000)::bigint AS last_dead,
        (extract(epoch FROM min(last_seen_at)) * 1000000)::bigint AS first_seen, (extract(epoch FROM max(last_seen_at)) * 1000000)::bigint AS last_seen,
        min(amount) AS least_amount, max(amount) AS most_amount, min(attempts) AS least_attempts, max(attempts) AS most_attempts,
        (extract(epoch FROM max(last_seen_at - dead_at)) * 1000000)::bigint AS most_lag
      FROM recourse.letters GROUP BY shape) d
WHERE s.id = d.shape;

-- A change of letters is a count that rises by what is there after it, and falls by
-- what was there before. Bounds take in what is there after it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION recourse.count_letters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE recourse.letter_shapes s SET letters = s.letters - d.n, at_risk = s.at_risk - d.risk, attempts = s.attempts - d.tries
        FROM (SELECT shape, count(*) AS n, sum(at_risk) AS risk, sum(attempts) AS tries FROM before_rows GROUP BY shape) d WHERE s.id = d.shape;
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        UPDATE recourse.letter_shapes s SET letters = s.letters - d.n, at_risk = s.at_risk - d.risk, attempts = s.attempts - d.tries
        FROM (SELECT shape, sum(n) AS n, sum(risk) AS risk, sum(tries) AS tries FROM (
                SELECT shape, 1 AS n, at_risk AS risk, attempts AS tries FROM before_rows UNION ALL SELECT shape, -1, -at_risk, -attempts FROM after_rows) u
              GROUP BY shape HAVING sum(n) <> 0 OR sum(risk) <> 0 OR sum(tries) <> 0) d
        WHERE s.id = d.shape;
    END IF;
    UPDATE recourse.letter_shapes s
    SET letters = s.letters + d.n, at_risk = s.at_risk + d.risk, attempts = s.attempts + d.tries,
      first_dead = least(s.first_dead, d.first_dead), last_dead = greatest(s.last_dead, d.last_dead),
      first_seen = least(s.first_seen, d.first_seen), last_seen = greatest(s.last_seen, d.last_seen),
      least_amount = least(s.least_amount, d.least_amount), most_amount = greatest(s.most_amount, d.most_amount),
      least_attempts = least(s.least_attempts, d.least_attempts), most_attempts = greatest(s.most_attempts, d.most_attempts),
      most_lag = greatest(s.most_lag, d.most_lag)
    FROM (SELECT shape, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE 0 END AS n, CASE TG_OP WHEN 'INSERT' THEN sum(at_risk) ELSE 0 END AS risk,
            CASE TG_OP WHEN 'INSERT' THEN sum(attempts) ELSE 0 END AS tries,
            (extract(epoch FROM min(dead_at)) * 1000000)::bigint AS first_dead, (extract(epoch FROM max(dead_at)) * 1000000)::bigint AS last_dead,
            (extract(epoch FROM min(last_seen_at)) * 1000000)::bigint AS first_seen, (extract(epoch FROM max(last_seen_at)) * 1000000)::bigint AS last_seen,
            min(amount) AS least_amount, max(amount) AS most_amount, min(attempts) AS least_attempts, max(attempts) AS most_attempts,
            (extract(epoch FROM max(last_seen_at - dead_at)) * 1000000)::bigint AS most_lag
          FROM after_rows GROUP BY shape) d
    WHERE s.id = d.shape AND (d.n > 0 OR s.first_dead IS NULL OR d.first_dead < s.first_dead OR d.last_dead > s.last_dead OR d.first_seen < s.first_seen OR d.last_seen > s.last_seen
      OR d.least_amount < s.least_amount OR d.most_amount > s.most_amount OR d.least_attempts < s.least_attempts OR d.most_attempts > s.most_attempts OR d.most_lag > s.most_lag);
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
