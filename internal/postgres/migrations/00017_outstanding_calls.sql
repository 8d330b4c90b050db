-- +goose Up

-- The attempts of a run that ended while their call went on; NULL when there are none, as
-- nearly always. unheard had a bit for each, which attempts 63 apart shared: of those that
-- share one, the last is carried over.
ALTER TABLE recourse.runs ADD COLUMN outstanding_calls int[];

UPDATE recourse.runs SET outstanding_calls = (
    SELECT array_agg(last ORDER BY last) FROM (
        SELECT max(attempt) AS last FROM generate_series(1, greatest(attempt_count, 63)) AS attempt
        WHERE unheard & (1::bigint << ((attempt - 1) % 63)) <> 0 GROUP BY (attempt - 1) % 63) AS bits)
WHERE unheard <> 0;

ALTER TABLE recourse.runs DROP COLUMN unheard;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
