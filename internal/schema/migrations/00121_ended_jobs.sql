-- +goose Up

-- Read by the counts of a queue. Only jobs that have ended are in it: a claim changes no column of it.
CREATE INDEX runs_ended ON recourse.runs (tenant, queue, id) WHERE remote AND NOT live;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
