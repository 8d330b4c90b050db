-- +goose Up

-- Read by the sums of money that is reserved although no run is live and no dead letter is open: after a purge, a
-- finding, or the cancel of a fork. Runs that paid are not in it, so that its size does not grow with what is settled.
-- A claim changes no column of it.
CREATE INDEX runs_without_letter ON recourse.runs (tenant, case_id)
  WHERE NOT active AND family = 'settlement' AND (letter IN ('purged', 'reconciled') OR letter = '' AND parent_id IS NOT NULL AND class <> 'executed');

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
